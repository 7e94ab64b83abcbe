"""The build hook of wheels: bundles the studio's pages where Node.js is installed.

Editable installs and source archives have no pages: `make studio` builds them in a checkout. Where
they cannot be built, those that are there are taken, as in an image in which another stage builds
them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ASSETS = "tuner/studio/assets"
INSTALL = ("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
BUNDLE = ("node", "build.mjs")


class StudioBuildHook(BuildHookInterface[Any]):
    """A hook that adds the pages to a wheel, or warns that it has none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Bundle the pages, unless the wheel is that of an editable install."""
        if version == "editable":
            return
        root = Path(self.root)
        problem = build_pages(root / "studio")
        if problem and not (root / ASSETS / "index.html").exists():
            self.app.display_warning(f"the wheel has no studio: {problem}")
        build_data["artifacts"].append(f"/{ASSETS}/*")


def build_pages(sources: Path) -> str:
    """Bundle the pages; return why that was not possible, "" if it was."""
    if not (sources / "package.json").exists() or not (
        shutil.which("node") and shutil.which("npm")
    ):
        return "Node.js is not installed"
    if not (sources / "node_modules").exists():
        installed = subprocess.run(INSTALL, cwd=sources, capture_output=True, text=True)
        if installed.returncode:
            return f"npm cannot install its packages: {_last_line(installed.stderr)}"
    bundled = subprocess.run(BUNDLE, cwd=sources, capture_output=True, text=True)
    return f"esbuild failed: {_last_line(bundled.stderr)}" if bundled.returncode else ""


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
