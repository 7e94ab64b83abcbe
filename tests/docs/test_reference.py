"""The reference pages that are made from the code are complete."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

from docs.site import commands, machines, packages, rest
from docs.site.prose import markdown, restructured
from tests.docs.pages import ROOT
from tuner.cli.main import COMMANDS, build_parser
from tuner.machines import PRESETS, known_gpus, preset_spec
from tuner.machines.catalog import known_parts


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its actions."""
    yield parser
    for inner in commands.subparsers(parser).values():
        yield from parsers(inner)


def test_every_option_is_on_the_page_of_its_command() -> None:
    pages = dict(commands.pages())
    assert set(pages) == {*COMMANDS, "tuner-run"}
    for name in COMMANDS:
        for parser in parsers(commands.subparsers(build_parser([name]))[name]):
            assert parser.prog in pages[name]
            shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
            for option in (option for action in shown for option in action.option_strings):
                documented = re.search(rf"^`[^`]*{option}\b", pages[name], re.MULTILINE)
                assert documented or option in ("-h", "--help"), option


def test_every_operation_is_described() -> None:
    pages = dict(rest.pages())
    text = "\n".join(pages.values())
    for path, operations in rest.document()["paths"].items():
        for method in operations:
            assert f"## {method.upper()} {path}\n" in text
    linked = set(re.findall(r"\(#(schema-[\w-]+)\)", text))
    assert linked <= set(re.findall(r"^\((schema-[\w-]+)\)=$", pages["schemas"], re.MULTILINE))
    assert len(linked) > 20


def test_every_module_is_on_the_page_of_its_package() -> None:
    text = "\n".join(page for _, page in packages.pages())
    found = set(re.findall(r"automodule:: (\S+)", text))
    files = [path.relative_to(ROOT) for path in (ROOT / "tuner").rglob("*.py")]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files}
    assert found == modules - {"tuner.__main__"}


def test_every_machine_is_on_the_page_of_machines() -> None:
    ((name, page),) = machines.pages()
    assert name == "machines"
    titles = re.findall(r"^## (.+) \(`(.+)`\)$", page, re.MULTILINE)
    assert titles == [(preset_spec(preset).title, preset) for preset in PRESETS]
    assert all(f"| {product}: memory |" in page for product in known_gpus())
    assert all(f"| `{part}` |" in page for part in known_parts())
    assert {line.count("|") for line in page.splitlines() if line.startswith("|")} == {5}


DOCSTRING = """Return `it`, or None.

    name    a *thing*
            in two lines
    a, b    others

    - first
      point
    - second

    tuner x    said
"""


def test_plain_text_becomes_markdown() -> None:
    assert markdown("Uses <b>_x_ and `a_b`.\n\n  tuner x   y") == (
        "Uses \\<b>\\_x\\_ and `a_b`.\n\n```text\ntuner x   y\n```"
    )


def test_docstrings_become_restructured_text() -> None:
    assert restructured(DOCSTRING).split("\n\n") == [
        "Return \\ ``it``\\ , or None.",
        "``name``\n    a \\*thing\\* in two lines\n``a, b``\n    others",
        "- first\n  point\n- second",
        "::",
        "    tuner x    said",
    ]


def test_what_most_programs_need_exists() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    listed = re.findall(r"((?:`\w+`, )*`\w+`) in `(tuner[\w.]*)`", page)
    assert len(listed) > 10
    for names, module in listed:
        if module == "tuner.torch":  # its import needs PyTorch
            assert find_spec(module)
            continue
        found = import_module(module)  # `tune` is in __all__, and imported on first use
        known = {*vars(found), *getattr(found, "__all__", ())}
        assert set(re.findall(r"\w+", names)) <= known, module
