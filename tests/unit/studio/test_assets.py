"""The files of the pages: what is sent, under which names, and what others wrote."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tuner.studio.assets import FILES, PAGES, PAGES_DIR, REFERENCE, load_assets

VENDOR = PAGES_DIR / "vendor"
LISTED = json.loads((VENDOR / "files.json").read_text(encoding="utf-8"))
HTML = '<html><head><script src="/studio/studio.js"></script></head></html>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pages of which each imports a module that imports another."""
    for page in PAGES:
        (tmp_path / f"{page or 'studio'}.js").write_text('import { a } from "./a.js";\n')
    (tmp_path / "docs.js").write_text("start();\n")
    (tmp_path / "a.js").write_text('import {\n  b,\n} from "./deep/b.js";\n')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.js").write_text('import { c } from "../a.js"; // a circle\n')
    for name in ("index.html", "docs.html"):
        (tmp_path / name).write_text(HTML)
    return tmp_path


def test_a_page_names_the_modules_that_it_needs_once(folder: Path) -> None:
    assets = load_assets(folder)
    (script,) = (name for name in assets if name.endswith("/studio.js"))
    version = script.removesuffix("studio.js")
    text = assets["call"].content.decode()
    named = [part.split('"')[0] for part in text.split('href="/studio/')[1:]]
    assert sorted(named) == [
        version + name for name in ("a.js", "call.js", "deep/b.js", "studio.js")
    ]
    assert f'src="/studio/{script}"' in text
    assert "call.js" not in assets["table"].content.decode()


def test_a_changed_file_changes_all_addresses(folder: Path) -> None:
    before = {name for name in load_assets(folder) if name.startswith(FILES)}
    (folder / "deep" / "b.js").write_text("changed();\n")
    assert before.isdisjoint(load_assets(folder))


def test_every_page_of_the_studio_is_there() -> None:
    assets = load_assets()
    assert {*PAGES, REFERENCE} <= assets.keys()
    for page in PAGES:
        assert b"modulepreload" in assets[page].content
        assert assets[page].caching == "no-cache"


def test_what_others_wrote_is_unchanged_and_listed() -> None:
    """Each file of the folder has the hash of the released one."""
    files = {name: digest for one in LISTED.values() for name, (_, digest) in one["files"].items()}
    found = {path.name for path in VENDOR.iterdir()} - {"files.json"}
    assert files.keys() == found
    for name, digest in files.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name


def test_the_listed_versions_are_those_of_the_files() -> None:
    for name, one in LISTED.items():
        script = (VENDOR / f"{name}.esm.js").read_text(encoding="utf-8")
        assert f"(v{one['version']})" in script
        licence = one["license"].split(", in ")
        assert licence[0] in (VENDOR / licence[1]).read_text(encoding="utf-8")
