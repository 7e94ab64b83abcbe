"""Every verb in terminals of 80, 60 and 40 columns: no word and no number is cut in two.

All verbs show what one small quickstart measured. The words that a verb prints in a terminal wide
enough for everything are all that there are: another one in a narrow terminal is a piece of one.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.nccl import on_shapes
from tests.support.terminals import plain, screen
from tuner.cli.main import COMMANDS, main
from tuner.cli.terminal.layout import LINE_CONTINUATION, display_width
from tuner.cli.terminal.output import OMITTED_COLUMNS_NOTE
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, read_table, write_table
from tuner.launch import Launcher

pytestmark = pytest.mark.extended

WIDE = 1000
NARROW = (80, 60, 40)
PROGRAM = (sys.executable, "-m", "tuner")
SMALL = [
    "quickstart",
    "--out",
    "out",
    "--ranks",
    "3",
    "--libraries",
    "openmpi",
    "--budget",
    "60s",
    "--sizes",
    "64,1KiB,64KiB",
]
STUDY = """
name: twice the network
topology: {name: cluster, nodes: 16, latency: 2us, bandwidth: 12.5GB/s}
vary: {nodes: [4, 16], bandwidth: [12.5GB/s, 25GB/s]}
collectives: [allreduce]
sizes: [64KiB, 1MiB]
algorithms: [recursive_doubling, two_level_recursive_doubling, rabenseifner]
"""
WORKLOAD = """
name: ResNet-50 with a long name of its workload
model: resnet50
batch: 64
framework: zero
algorithms: best
rate: 300
topology: {name: cluster, nodes: 4, latency: 2us, bandwidth: 12.5GB/s}
ranks: [1, 2, 4]
noise: 3%
published: [{ranks: 4, efficiency: 90%, source: made for the tests}]
"""
SWEEP = WORKLOAD + "vary: {bandwidth: [100Gb/s, 200Gb/s]}\nepoch: 1281167\ncost: {gpu_hour: 2.5}\n"
RESULTS = "cluster,library,run,collective,nodes,ppn,algorithm,size_bytes,median_us\n" + "".join(
    f"ares,openmpi 5.0.11,r1,allreduce,{nodes},1,{name},{nbytes},{factor * nodes * nbytes}\n"
    for name, factor in (("default", 3), ("recursive_doubling", 2), ("segmented_ring", 5))
    for nodes in (2, 4, 8)
    for nbytes in (1024, 4096, 65536)
)
OSU = "# OSU MPI Allreduce Latency Test v7.3\n# Size   Avg Latency(us)\n23168   48.90\n"
TABLE = "out/openmpi/table.json"
MEASURED = "out/openmpi/measurements.ndjson"
FLAT = str(ROOT / "docs/examples/flat64.yaml")
CASES = {
    "doctor": ["", "--python nowhere/python"],
    "probe": [
        "plan --ranks 4 --sizes 64KiB",
        "plan --hosts a,b --ppn 2 --sizes 22.6KiB",
        "run",
        f"merge {MEASURED} --out merged.ndjson",
    ],
    "import-results": [
        "osu.txt --ranks 4 --nodes 1 --library 'openmpi 5.0.11' --cluster here --out osu.ndjson"
    ],
    "calibrate": [f"{MEASURED} --out again.json", "compare out/openmpi/calibration.json slow.json"],
    "simulate": [
        f"--topology {FLAT} --collective allreduce --sizes 22.6KiB --explain --algorithm"
        " two_level_recursive_doubling,segmented_ring,ring"
    ],
    "tune": [f"--measurements {MEASURED} --calibration slow.json --out t.json --shapes 2x4"],
    "topology": [
        "list",
        "show dgx-h100",
        f"show {FLAT}",
        "draw dgx-1v -o node.svg",
        "show nothing",
    ],
    "study": ["twice.yaml --csv twice.csv"],
    "training": [
        "run workload.yaml",
        "tune workload.yaml --out tuned.yaml",
        "sweep sweep.yaml --csv sweep.csv",
    ],
    "evaluate": ["results.csv --baselines nearest", f"results.csv --table {TABLE}"],
    "train": ["results.csv --out trained"],
    "select": [
        f"{TABLE} --collective bcast --ranks 3 --size 22.6KiB",
        "trained --group 'ares openmpi 5.0.11' --collective allreduce --nodes 4 --ranks 4"
        " --size 1KiB",
        f"{TABLE} --collective bcast --ranks 3 --nodes 2 --size 1",
    ],
    "table": [
        f"show {TABLE}",
        f"diff {TABLE} other.json",
        f"diff {TABLE} {TABLE}",
        "export other.json --format openmpi --out o.rules",
        f"check o.rules --table {TABLE}",
        f"validate {TABLE}",
        "export",
    ],
    "serve": ["--upload-limit nothing", "--port 99999"],
    "studio": ["--port 99999"],
    "publish": [f"{TABLE} --service http://127.0.0.1:9"],
    "token": [
        "create {0} --scope read,submit --db sqlite:///t.db",
        "list --db sqlite:///t.db",
        "revoke {0} --db sqlite:///t.db",
        "list --db sqlite:///t.db",
    ],
    "emulate": [f"status {FLAT}", "run"],
    "nccl": [
        "estimate --topology preset:dgx-h100:4 --sizes 8,1GiB --all",
        "install nccl.json --out plugin",
        f"install {TABLE} --out other",
    ],
    "algorithms": ["", "--collective bcast"],
    "completion": ["", "nothing"],
    "db": ["prune --db sqlite:///t.db --keep-jobs-for 90d --dry-run", "prune --keep-tables none"],
}
CHANGING = re.compile(
    r"\d+ %  (?:just begun|\d+:\d\d left).*|\b0 % *$|\d+:\d\d|\d+%,|\b(left|just|begun)\b"
    r"|tuner_\S+|\b\d{4}-\d\d-\d\d\S*|reader-\d+",
    re.MULTILINE,
)  # progress, names of files and times
REFRESHES_PER_S = 100  # so that also quick work shows its progress
OWN = {"...", "\\", "[OPTIONS]", *(word.strip(":,") for word in OMITTED_COLUMNS_NOTE.split())}


@pytest.fixture(scope="module")
def place(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished quickstart and files that other verbs read, with the names of the longest kind."""
    folder = tmp_path_factory.mktemp("terminal")
    status, said = screen([*PROGRAM, *SMALL], 80, folder)
    assert status == 0, said
    for name, text in (
        ("first.txt", said),
        ("twice.yaml", STUDY),
        ("workload.yaml", WORKLOAD),
        ("sweep.yaml", SWEEP),
        ("results.csv", RESULTS),
        ("osu.txt", OSU),
    ):
        (folder / name).write_text(text)
    table = read_table(folder / TABLE)
    longest = AlgorithmChoice("segmented_ring", {"segment": 1 << 20})
    rules = [
        replace(rule, choice=longest if rule.key.collective == "allreduce" else rule.choice)
        for rule in table.rules
    ]
    write_table(TuningTable(table.cluster, table.library, tuple(rules)), folder / "other.json")
    rungs = [(0, AlgorithmChoice("ring_ll")), (4096, AlgorithmChoice())]
    write_table(on_shapes({(Collective.ALLREDUCE, (2, 8)): rungs}), folder / "nccl.json")
    shutil.copy(folder / "out/openmpi/calibration.json", folder / "slow.json")
    return folder


def words_of(text: str) -> set[str]:
    """Without the signs that a sentence adds to the title of a column."""
    return {word.rstrip(",:") for word in re.split(r"[\s─━╸╺]+", CHANGING.sub("", text))}


def too_wide(text: str, columns: int) -> Iterator[str]:
    """Lines that do not fit, although they could be broken at a blank."""
    for line in text.split("\n"):
        words = re.findall(r"'[^']*'|\S+", line.removesuffix(LINE_CONTINUATION))
        if display_width(line.rstrip()) > columns and len(words) > 1:
            yield line


def test_quickstart_fits_the_terminal(place: Path) -> None:
    """First with everything to do, then with all of it kept."""
    first = (place / "first.txt").read_text()
    assert "rules were seen at work" in first
    assert list(too_wide(first, 80)) == []
    shown = {}
    for columns in (WIDE, *NARROW):
        status, shown[columns] = screen([*PROGRAM, *SMALL], columns, place)
        assert status == 0, shown[columns]
    for columns in NARROW:
        assert list(too_wide(shown[columns], columns)) == []
        assert words_of(shown[columns]) - OWN <= words_of(shown[WIDE]), columns


@pytest.mark.parametrize("verb", CASES)
def test_no_word_is_cut(
    verb: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr("tuner.cli.terminal.progress.REFRESHES_PER_S", REFRESHES_PER_S)
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)

    def shown(words: str, columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        with suppress(SystemExit):  # of argparse, after help or a usage
            main([verb, *shlex.split(words.format(f"reader-{columns}"))])
        said = capsys.readouterr()
        return plain(said.out + said.err)

    helps = [f"{action.split()[0]} --help" for action in CASES[verb] if action[:1].isalpha()]
    for words in (*CASES[verb], "--help", *helps):
        every = words_of(shown(words, WIDE)) | OWN
        for columns in NARROW:
            text = shown(words, columns)
            assert list(too_wide(text, columns)) == [], words
            assert words_of(text) - every == set(), words
            assert text.strip()


def test_a_service_fits_the_terminal(place: Path) -> None:
    words = [*PROGRAM, "serve", "--port", "0", "--db", "sqlite:///s.db"]
    status, said = screen(words, 40, place, until="ends it")
    assert status == 0
    assert list(too_wide(said, 40)) == []
    assert {"Ctrl-C", "tuner", "(see", "/openapi.json);"} <= words_of(said)


def test_every_verb_is_seen() -> None:
    assert {*CASES, "quickstart"} == set(COMMANDS)
