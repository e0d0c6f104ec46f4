"""A domain that the package does not know: that of CONTRIBUTING.md, words as paths of letters."""

from typing import Any

from house_support import ROOT, blocks

CODE = next(code for code in blocks(ROOT / "CONTRIBUTING.md", "python") if "PathDomain" in code)
CODE = CODE.partition("register(PathDomain())")[0] + "DOMAIN = PathDomain()\n"
PATH: Any
DOMAIN: Any
exec(CODE)
