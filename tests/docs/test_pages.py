"""All pages are reachable, their links lead somewhere, and what they show is right."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, blocks, children, is_generated, links, name
from tests.unit.training.workload_files.test_recorded_files import SIMAI
from tuner import run
from tuner.base.file_settings import declared_settings
from tuner.cli.main import build_parser
from tuner.core.calibration import Calibration, CostSegment, PathCost
from tuner.core.measurement import Cluster, Measurement
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, parse_table
from tuner.machines.topology_files import load_topology
from tuner.studio.assets import PAGES as STUDIO_PAGES
from tuner.training.frameworks import FRAMEWORKS
from tuner.training.recorded_training import RecordedTraining
from tuner.training.sweep_spec import read_sweep
from tuner.training.workload import read_training, read_workload
from tuner.training.workload_settings import RecordedSettings, SweepSettings, WorkloadSettings
from tuner.whatif.study_spec import read_study

README = ROOT / "README.md"
ALL = pytest.mark.parametrize("page", PAGES, ids=name)
OPERATORS = ("&&", "||", ";", "|", "&", "(", ")")
REDIRECTION = re.compile(r"\s[<>]+ *\S+")
DASHES = "--"


def test_every_page_is_in_the_navigation() -> None:
    found = {DOCS / "index.md"}
    border = set(found)
    while border:
        border = {child for page in border for child in children(page)} - found
        found |= border
    assert sorted(map(name, found)) == sorted(map(name, PAGES))


@pytest.mark.parametrize("folder", ["adr", "experiments"])
def test_records_are_numbered(folder: str) -> None:
    records = sorted((DOCS / folder).glob("[0-9]*.md"))
    numbers = [record.name[:4] for record in records]
    assert len(set(numbers)) == len(numbers)
    assert all(record.read_text().startswith(f"# {record.name[:4]}: ") for record in records)
    assert children(DOCS / folder / "index.md") == {record.resolve() for record in records}


def test_each_decision_is_listed_once_below_its_topic() -> None:
    index = DOCS / "adr" / "index.md"
    topics = re.split(r"^## .+$", index.read_text(), flags=re.MULTILINE)[1:]
    listed = [re.findall(r"^\d{4}-\S+$", topic, re.MULTILINE) for topic in topics]
    assert all(listed)
    assert sorted(chain(*listed)) == sorted(page.stem for page in index.parent.glob("[0-9]*.md"))


def test_decisions_that_are_named_exist() -> None:
    decisions = {page.name[:4] for page in (DOCS / "adr").glob("[0-9]*.md")}
    sources = [*PAGES, *(page for top in ("tuner", "tests") for page in (ROOT / top).rglob("*.py"))]
    for source in sources:
        named = re.findall(r"decisions? \[?(\d{4})", source.read_text(), re.IGNORECASE)
        assert set(named) <= decisions, source


@pytest.mark.parametrize("page", [README, ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda p: p.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https:", "http:")):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists():
            assert is_generated(target), link
            continue
        assert not anchor or anchor in anchors(target), link


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every command in lines of a shell, without what is set for it alone."""
    for line in REDIRECTION.sub("", text.replace("\\\n", " ")).splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for token in [*lexer, ";"]:
            if token not in OPERATORS:
                words.append(token)
                continue
            while words and (words[0] == "sudo" or re.match(r"\w+=", words[0])):
                del words[0]
            if words:
                yield words
            words = []


def shell(page: Path) -> Iterator[list[str]]:
    """Yield the commands that a page shows."""
    for block in blocks(page, "bash"):
        yield from commands(block)
    for block in blocks(page, "console"):
        yield from commands("\n".join(re.findall(r"^\$ (.*)$", block, re.MULTILINE)))


def check_command(words: list[str]) -> None:
    """Fail unless the parsers of the project accept a command."""
    words = [re.sub(r"\$\w+", "name", word.replace("$T", "tuner")) for word in words]
    program = Path(words[0]).name
    if program == "tuner":
        build_parser(words[1:]).parse_args(words[1:])
        if DASHES in words:
            check_command(words[words.index(DASHES) + 1 :])
    elif program == "make":
        targets = (ROOT / "Makefile").read_text()
        assert all(f"\n{word}:" in targets for word in words[1:] if "=" not in word), words
    elif "tuner.run" in words:
        run.make_parser().parse_args(words[words.index("tuner.run") + 1 :])
    elif "-m" in words and words[words.index("-m") + 1].startswith("tests."):
        assert find_spec(words[words.index("-m") + 1]), words


@ALL
def test_commands_are_accepted(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in shell(page):
        try:
            check_command(words)
        except SystemExit:
            pytest.fail(f"{shlex.join(words)}: {capsys.readouterr().err}")


def test_commands_of_the_readme_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    indented = re.findall(r"(?:^ {4}.*\n)+", README.read_text(), re.M)
    found = [words for block in indented for words in commands(block) if is_program(words[0])]
    assert len(found) > 10
    for words in found:
        try:
            check_command(words)
        except SystemExit:
            pytest.fail(f"{shlex.join(words)}: {capsys.readouterr().err}")


@pytest.mark.parametrize("script", sorted((DOCS / "examples").glob("*.sbatch")), ids=name)
def test_commands_of_batch_scripts_are_accepted(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [words for words in commands(script.read_text()) if {"tuner", "srun"} & set(words)]
    assert found
    for words in found:
        try:
            check_command([word for word in words if word != "$@"])
        except SystemExit:
            pytest.fail(f"{shlex.join(words)}: {capsys.readouterr().err}")


def test_the_environment_is_activated_where_it_is_made() -> None:
    asked = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "tune"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ". .venv/bin/activate" in asked.stdout.splitlines()[-1]
    typed = re.compile(r"^ *make tune\b.*\n *\. \.venv/bin/activate\b", re.MULTILINE)
    for page in (README, DOCS / "tutorials" / "first-table.md"):
        assert typed.search(page.read_text()), page


def is_program(word: str) -> bool:
    """Tell commands from what they print and from code."""
    return word in ("tuner", "make", "git", "mpirun", "mpiexec")


def test_commands_are_found() -> None:
    assert list(
        commands("U=1; sudo A=b tuner x 'y z' \\\n  --k v  # said\ncd a && make b > f")
    ) == [["tuner", "x", "y z", "--k", "v"], ["cd", "a"], ["make", "b"]]
    assert sum(words[0] == "tuner" for page in PAGES for words in shell(page)) > 80
    with pytest.raises(SystemExit):
        check_command(["tuner", "tune", "--nonsense"])


@ALL
def test_code_is_valid(page: Path) -> None:
    for block in blocks(page, "python"):
        body = f"{block}    ...\n" if block.startswith("@") else block
        compile(body, name(page), "exec")
    for block in blocks(page, "json"):
        json.loads(block)
    for block in blocks(page, "yaml"):
        assert yaml.safe_load(block)


def test_each_page_of_the_studio_has_its_section() -> None:
    sections = anchors(DOCS / "how-to" / "use-the-studio.md")
    for page in filter(None, STUDIO_PAGES):
        assert {page, {"call": "inside-a-call", "login": "log-in"}.get(page)} & sections, page


def test_topologies_are_read(tmp_path: Path) -> None:
    page = DOCS / "how-to" / "describe-a-machine.md"
    shown = [block for block in blocks(page, "yaml") if re.match("name|preset", block)]
    assert len(shown) == 7
    for number, block in enumerate(shown):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        assert load_topology(file).nodes


def test_the_study_of_the_tutorial_is_read(tmp_path: Path) -> None:
    (block,) = blocks(DOCS / "tutorials" / "study.md", "yaml")
    file = tmp_path / "twice.yaml"
    file.write_text(block)
    assert read_study(file).name == "twice the network"


def test_the_workloads_of_the_pages_are_read(tmp_path: Path) -> None:
    tutorial, guide = DOCS / "tutorials" / "training.md", DOCS / "how-to" / "predict-training.md"
    shown = [block for page in (tutorial, guide) for block in blocks(page, "yaml")]
    assert len(shown) == 9
    for number, block in enumerate(shown):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        if "vary:" in block:
            assert len(read_sweep(file)[0].grid) > 1
        elif "recorded:" in block:
            (tmp_path / "trace.json").write_text(SIMAI)
            assert isinstance(read_training(file), RecordedTraining)
        else:
            assert read_workload(file).ranks[-1] > 1


def test_keys_and_settings_of_workloads_are_documented() -> None:
    page = DOCS / "reference" / "workloads.md"
    words = set(re.findall(r"[a-z_0-9]+", " ".join(re.findall("`([^`\n]+)`", page.read_text()))))
    for record in (WorkloadSettings, RecordedSettings, SweepSettings):
        assert declared_settings(record).keys() <= words
    rows = {
        known: row
        for row in re.findall(r"^\| `.*$", page.read_text(), re.MULTILINE)
        for known in re.findall("`([a-z-]+)`", row.split("|")[1])
    }
    for known, framework in FRAMEWORKS.items():
        written = dict.fromkeys(re.findall(r"`([a-z_]+)`", rows[known]), "")
        written |= dict(re.findall(r"`([a-z_]+): ([^`]+)`", rows[known]))
        for setting in declared_settings(type(framework)).values():
            if known != "fsdp" and (value := written[setting.name]):
                default = framework.settings[setting.name]
                assert setting.kind.read(setting.name, yaml.safe_load(value)) == default


def test_the_fields_of_files_are_documented() -> None:
    page = DOCS / "reference" / "file-formats.md"
    words = set(re.findall(r"[a-z_0-9]+", " ".join(re.findall("`([^`\n]+)`", page.read_text()))))
    kinds = (Rule, RuleKey, AlgorithmChoice, Evidence, Cluster, Measurement)
    for kind in (*kinds, Calibration, PathCost, CostSegment):
        fields = {field.name for field in dataclasses.fields(kind)}
        assert fields <= words, (kind.__name__, fields - words)


def test_the_documented_table_is_read() -> None:
    table = parse_table(next(blocks(DOCS / "reference" / "file-formats.md", "json")))
    assert [str(rule.choice) for rule in table.rules] == ["default", "nonoverlapping"]
