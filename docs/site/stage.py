"""Put the sources of the site into a folder: the pages of docs/ and those made from the code.

python -m docs.site.stage build/docs-source
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from docs.site import commands, machines, packages, rest

DOCS = Path(__file__).parents[1]
GENERATED = {
    "reference": machines.pages,
    "reference/commands": commands.pages,
    "reference/rest": rest.pages,
    "reference/python": packages.pages,
}


def stage(target: Path) -> None:
    """Write all pages; `target` is replaced."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(DOCS, target, ignore=shutil.ignore_patterns("site", "__pycache__"))
    for folder, pages in GENERATED.items():
        (target / folder).mkdir(exist_ok=True)
        for name, text in pages():
            (target / folder / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
