"""Sphinx settings; `make docs` builds into docs/_build/html."""

import shutil
from pathlib import Path
from typing import Any

from sphinx.ext import autosummary

HERE = Path(__file__).resolve().parent

project = "graphlog"
author = "The graphlog authors"
copyright = "2026, The graphlog authors"
release = "0.2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated", "_templates"]
suppress_warnings = [
    "ref.python",  # a name re-exported by its package has two homes
    "autodoc.import_cycle",
]

smartquotes = False  # two hyphens before an option are two hyphens
html_theme = "furo"
html_title = "graphlog"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_theme_options = {"source_edit_link": "", "navigation_with_keys": True}

templates_path = ["_templates"]
autosummary_ignore_module_all = True
autosummary.WELL_KNOWN_ABBREVIATIONS += ("Eq.", "Eqs.", "Sec.")  # no ends of a first sentence

autodoc_typehints = "description"
autodoc_member_order = "bysource"
# scikit-learn adds methods whose docstrings refer to its own pages
FOREIGN = [
    "model_config",
    *(f"set_{verb}_request" for verb in ("fit", "predict", "predict_proba", "score", "transform")),
]
autodoc_default_options = {
    "members": True,
    "show-inheritance": True,
    "exclude-members": ",".join(FOREIGN),
}
napoleon_google_docstring = True
napoleon_numpy_docstring = False


def _write_command_reference() -> None:
    """Let the command line describe itself, so that its page cannot fall behind."""
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from graphlog.cli.main import app

    command = get_command(app)
    with command.make_context("graphlog", [], resilient_parsing=True) as context:
        text = get_docs_for_click(obj=command, ctx=context, name="graphlog")
    target = HERE / "_generated"
    target.mkdir(exist_ok=True)
    (target / "cli.md").write_text(text.split("\n", 1)[1], encoding="utf-8")


def setup(app: Any) -> None:
    shutil.rmtree(HERE / "api" / "modules", ignore_errors=True)  # of modules that are gone, too
    _write_command_reference()
