"""Sphinx settings. `make docs` runs the notebooks and builds the pages; each warning is an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from nbmodule import __version__  # noqa: E402

project, author, release = "nbmodule", "The nbmodule authors", __version__
copyright = "the nbmodule authors"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "reference",
    "notebook_sources",
    "plain_docstrings",
]
exclude_patterns = ["_build", "_ext", "conf.py", "jupyter_execute"]

# -- pages -------------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
suppress_warnings = [
    "misc.highlighting_failure",  # the sketches of views are no code
    "myst-nb.lexer",  # unknown until a notebook has run
]
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = os.environ.get("NBMODULE_DOCS_EXECUTION", "cache")
nb_execution_excludepatterns = os.environ.get("NBMODULE_DOCS_NOT_EXECUTED", "").split()
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # displays bring all they need; nothing is fetched

# -- reference ---------------------------------------------------------------------------------------
autodoc_typehints = "none"  # shapes stand in the signature, and the docstring says what they mean
autodoc_member_order = "bysource"
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_custom_sections = ["Source"]
default_role = "code"  # docstrings write code between single backticks

# -- looks -------------------------------------------------------------------------------------------
html_theme = "furo"
html_title = f"nbmodule {__version__}"
html_static_path: list[str] = []
html_extra_path = ["sheet.html"]  # one page to print; it stands alone
html_show_search_summary = (
    False  # would fetch each page, which a browser refuses to pages from a file
)
