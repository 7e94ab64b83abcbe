"""The reference pages of the Python packages: a page for each package, with all its modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import tuner

SOURCES = Path(tuner.__file__).parent


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every page."""
    yield (
        "tuner",
        _page("tuner", [path for path in SOURCES.glob("*.py") if path.stem != "__main__"]),
    )
    for package in sorted(path.parent for path in SOURCES.glob("*/__init__.py")):
        name = f"tuner.{package.name}"
        yield name, _page(name, package.rglob("*.py"))


def _page(name: str, files: Iterator[Path] | list[Path]) -> str:
    modules = sorted(_module(path) for path in files)
    sections = (f"## {module}\n\n{_directive(module)}" for module in modules if module != name)
    return "\n\n".join([f"# {name}", _directive(name), *sections]) + "\n"


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCES.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _directive(module: str) -> str:
    return f"```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n```"
