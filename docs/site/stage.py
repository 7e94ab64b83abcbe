"""Put the sources of the site into a folder: the pages of docs/ and those made from the code.

python -m docs.site.stage build/docs-source
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from docs.site import commands, packages, rest

DOCS = Path(__file__).parents[1]
GENERATED = {"commands": commands.pages, "rest": rest.pages, "python": packages.pages}


def stage(target: Path) -> None:
    """Write all pages; `target` is replaced."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(DOCS, target, ignore=shutil.ignore_patterns("site", "__pycache__"))
    for folder, pages in GENERATED.items():
        (target / "reference" / folder).mkdir()
        for name, text in pages():
            page = target / "reference" / folder / f"{name}.md"
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
