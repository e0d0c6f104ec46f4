"""The command ``graphlog``, run as ``python -m graphlog``."""

import sys

from graphlog.cli.main import main

if __name__ == "__main__":
    code = main()
    # Ctrl-C while an import runs `exec` (as dataclasses do) sets a flag in the interpreter, which
    # then ends by the signal instead of with this exit code; another `exec` clears the flag
    exec("")  # nosec B102
    sys.exit(code)
