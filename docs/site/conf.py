"""Configuration of Sphinx for the documentation site."""

from __future__ import annotations

import logging
from types import FunctionType
from typing import Any

from docs.site.prose import restructured
from tuner import __version__

project = "tuner"
release = version = __version__
html_title = f"tuner {__version__}"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["examples"]
highlight_language = "none"
smartquotes = False  # they would make dashes of the options in plain text

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4

autodoc_default_options = {"ignore-module-all": True}
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_mock_imports = ["cupy", "cupy_backends", "distributed", "mpi4py", "skops", "torch"]
autodoc_typehints_format = "fully-qualified"

add_module_names = False
python_use_unqualified_type_names = True

# The theme's package of colours makes every library log what it does.
logging.getLogger("alembic").setLevel(logging.WARNING)

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_domain_indices = html_use_index = False


def setup(app: Any) -> None:
    """Read docstrings as the plain text that they are, and those of tuner alone."""
    app.connect("autodoc-process-docstring", _plain_docstring)
    app.connect("autodoc-skip-member", _skips_member)


def _skips_member(
    app: object, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Return True for what another library made, else None: autodoc decides.

    It leaves out what has no docstring, but methods and properties whose name says all are listed.
    """
    called = getattr(obj, "fget", None) or getattr(obj, "func", obj)
    module = getattr(called, "__module__", None) or getattr(type(called), "__module__", "")
    if str(module).partition(".")[0] not in ("tuner", "builtins"):
        return True
    return False if isinstance(called, FunctionType) and not name.startswith("_") else None


def _plain_docstring(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = restructured("\n".join(lines)).splitlines()
