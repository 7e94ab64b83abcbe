"""`tuner nccl install`: what it makes, prints and refuses, and that nothing half-made remains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.nccl import CALLER, Caller, on_shapes
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, TuningTable, write_table
from tuner.formats.nccl import emit_sparse, install, parse
from tuner.formats.nccl.plugin import (
    HEADER,
    LIBRARY_FILE,
    RULES_FILE,
    SOURCE,
    compiler_command,
    fnv1a,
    with_digest_header,
)

pytestmark = pytest.mark.slow

ALLREDUCE = Collective.ALLREDUCE
RUNGS = [
    (0, AlgorithmChoice("tree_ll128")),
    (4096, AlgorithmChoice()),
    (65536, AlgorithmChoice("ring_simple", {"channels": 8})),
]
TABLE = on_shapes(
    {(ALLREDUCE, (2, 8)): RUNGS, (Collective.BCAST, (1, 8)): [(0, AlgorithmChoice("ring_ll"))]}
)
ROWS = """\
# collective,first,last,algorithm,protocol,channels,nodes,ranks (-1 channels: the library's own)
allreduce,0,4095,tree,ll128,-1,2,16
allreduce,65536,18446744073709551615,ring,simple,8,2,16
broadcast,0,18446744073709551615,ring,ll,-1,1,8
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    write_table(TABLE, path)
    return path


def test_what_a_user_types(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tuner nccl"
    assert main(["nccl", "install", str(table), "--out", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert f"export NCCL_TUNER_PLUGIN='{folder / LIBRARY_FILE}'" in printed
    assert "3 rules; the compiled plugin followed them in 8 test calls" in printed
    names = sorted(path.name for path in folder.iterdir())
    assert names == [LIBRARY_FILE, RULES_FILE, HEADER.name]
    header, _, rows = (folder / RULES_FILE).read_text().partition("\n")
    assert "collective" in rows
    assert header.endswith(fnv1a(rows.encode()))
    assert header.rpartition(" ")[2] in printed
    assert set(rows.splitlines()[1:]) == set(ROWS.splitlines()[1:])
    program = tmp_path / "caller"
    subprocess.run([*compiler_command(), "-o", program, CALLER, "-ldl", "-pthread"], check=True)
    said = Caller(program, folder / LIBRARY_FILE).run(["open 6 16 2 8 8", "ask 0 4 65536 7 0"])
    assert said.answers == ((1, 2, 8),)


def test_json(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    for _ in range(2):  # the same rules may be installed again
        assert main(["nccl", "install", str(table), "--out", str(folder), "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record == {
            "library": str(folder / LIBRARY_FILE),
            "rules": str(folder / RULES_FILE),
            "n_rules": 3,
            "digest": fnv1a((folder / RULES_FILE).read_bytes().partition(b"\n")[2]),
            "tested_calls": 8,
            "usage": f"export NCCL_TUNER_PLUGIN={folder / LIBRARY_FILE}",
            "left_to_library": 1,
            "cyclic_left_out": 0,
            "cautions": [],
        }


def test_the_digest_is_fnv1a() -> None:
    assert fnv1a(b"") == "cbf29ce484222325"
    assert fnv1a(b"a") == "af63dc4c8601ec8c"
    assert fnv1a(b"foobar") == "85944171f73967e8"


def test_rccl_reads_the_same_rows() -> None:
    """RCCL's own tuner ignores 0 channels with a warning for every call; -1 is its own number."""
    table = TuningTable(TABLE.cluster, "rccl 2.30.4", TABLE.rules)
    assert set(emit_sparse(table).splitlines()) == set(ROWS.splitlines())
    assert {row.channels for row in parse(emit_sparse(table), "rccl")} == {-1, 8}


def test_other_rules_are_not_replaced(tmp_path: Path) -> None:
    install(TABLE, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other = on_shapes({(ALLREDUCE, (2, 8)): [(0, AlgorithmChoice("ring_ll"))]})
    with pytest.raises(InputError, match=r"rules.csv holds other rules: .* hang; choose another"):
        install(other, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.representative("hello")
@pytest.mark.parametrize("damage", [b"hello", b"", b"-"])
def test_rules_that_were_changed_are_no_other_rules(tmp_path: Path, damage: bytes) -> None:
    install(TABLE, tmp_path)
    whole = (tmp_path / RULES_FILE).read_bytes()
    (tmp_path / RULES_FILE).write_bytes(
        whole.replace(b"ring", b"tree") if damage == b"-" else damage
    )
    with pytest.raises(InputError, match=r"rules.csv was changed since .* delete the folder"):
        install(TABLE, tmp_path)


@pytest.mark.representative("choice0", "choice2", "choice4")
@pytest.mark.parametrize(
    ("library", "choice", "caution"),
    [
        (
            "nccl 2.19.3",
            AlgorithmChoice("ring_ll"),
            "nccl 2.19.3 does not load this plugin: NCCL 2.21 is",
        ),
        ("nccl 2.21.5", AlgorithmChoice("ring_ll"), ""),
        (
            "nccl 2.21.5",
            AlgorithmChoice("tree_ll128"),
            "rules for tree_ll128 are left to NCCL 2.21",
        ),
        ("rccl 2.21.5", AlgorithmChoice("tree_ll128"), ""),
        ("nccl 2.27.5", AlgorithmChoice(), "no rule names an algorithm: NCCL decides everything"),
        (
            "nccl 2.27.5",
            AlgorithmChoice("nvls_simple", {"channels": 16}),
            "the channels of 1 rule are not",
        ),
        (
            "nccl 2.27.5",
            AlgorithmChoice("collnet_direct_simple", {"channels": 8}),
            "the channels of 1 rule",
        ),
        ("nccl 2.27.5", AlgorithmChoice("ring_simple", {"channels": 8}), ""),
    ],
)
def test_what_nccl_will_not_follow_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    library: str,
    choice: AlgorithmChoice,
    caution: str,
) -> None:
    table = on_shapes({(ALLREDUCE, (2, 8)): [(0, choice)]}, library=library)
    write_table(table, tmp_path / "table.json")
    words = ["nccl", "install", str(tmp_path / "table.json"), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"caution: {caution}" in printed if caution else "caution" not in printed


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_without_a_compiler(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert main(["nccl", "install", str(table), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "there is no C compiler (any of cc, gcc, clang): install gcc" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo 'plugin.c:1: error: no' >&2; exit 1", r"not compiled by .*: plugin.c:1: error"),
        ("exit 1", "no message"),
        ("exit 0", "does not follow the rules: .*cannot open shared object"),
        (
            'while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"',
            "does not follow the rules: .*(file too short|invalid ELF header)",
        ),
    ],
)
def test_a_compiler_that_fails(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "bad-cc", text))
    with pytest.raises(InputError, match=message):
        install(TABLE, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["bad-cc"]


@pytest.mark.representative("abort();")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "rule->first <= nbytes",
            "rule->first < nbytes",
            "bcast of 0 bytes: the rule is broadcast,0",
        ),
        (
            "nbytes <= rule->last",
            "nbytes < rule->last",
            "bcast of 18446744073709551615 bytes: the rule is",
        ),
        (
            "if (rule->channels > 0) *channels = rule->channels;",
            "",
            "allreduce of 65536 bytes: the rule is allreduce,65536",
        ),
        (
            "if (rule->channels > 0) *channels",
            "*channels",
            "bcast of 0 bytes: the rule is broadcast,0",
        ),
        ("*cost = 0.0f;", "abort();", "ended with status -6"),
        ("ncclTunerPlugin_v5", "ncclTunerPlugin_v15", "undefined symbol"),
        ('"rules.csv"', '"rules.txt"', "bytes: the rule is"),
    ],
)
def test_a_plugin_that_does_otherwise_is_not_installed(
    old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler gets another source: what it makes is tried before anything is written."""
    assert old in SOURCE.read_text()
    (tmp_path / "own.c").write_text(SOURCE.read_text().replace(old, new))
    text = f'exec {compiler_command()[0]} -shared -fPIC -o "$7" {tmp_path / "own.c"} -ldl'
    monkeypatch.setenv("CC", script(tmp_path / "cc", text))
    with pytest.raises(InputError, match=message):
        install(TABLE, tmp_path / "out")
    assert not (tmp_path / "out").exists()


UNLIMITED = on_shapes(
    {
        (ALLREDUCE, (nodes, 8)): [
            (0, AlgorithmChoice("nvls_simple", {"channels": 8})),
            (4096, AlgorithmChoice("collnet_direct_simple", {"channels": 8})),
        ]
        for nodes in (1, 2)
    }
)


def test_channels_are_tried_where_nccl_limits_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for CollNet, nor for NVLS on several nodes, where the plugin must not ask for any."""
    assert install(UNLIMITED, tmp_path / "own").tested_calls == 12
    own = "if (!may_say_channels(own, added->algorithm)) added->channels = 0;"
    text = SOURCE.read_text()
    assert text.count(own) == 1
    (tmp_path / "own.c").write_text(text.replace(own, "(void)may_say_channels;"))
    compile_own = f'exec {compiler_command()[0]} -shared -fPIC -o "$7" {tmp_path / "own.c"} -ldl'
    monkeypatch.setenv("CC", script(tmp_path / "cc", compile_own))
    with pytest.raises(InputError, match="the rule is allreduce,4096,"):
        install(UNLIMITED, tmp_path / "out")


def test_words_in_cc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{shutil.which('env')} {compiler_command()[0]}")
    assert install(TABLE, tmp_path).tested_calls == 8


def test_variables_of_nccl_do_not_disturb_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_ALGO", "ring")
    assert install(TABLE, tmp_path).tested_calls == 8


@pytest.mark.parametrize(
    ("library", "words", "message"),
    [
        ("openmpi 5.0.11", [], "the table is for openmpi 5.0.11: its rules mean nothing"),
        (
            "nccl 2.30.7",
            ["--library", "nccl 2.30.7"],
            "--library and --cluster belong to --service",
        ),
        ("nccl 2.30.7", ["--service", "http://127.0.0.1:9"], "either a table or --service"),
    ],
)
def test_what_is_refused(
    library: str, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.json"
    write_table(TuningTable(TABLE.cluster, library, TABLE.rules), path)
    folder = tmp_path / "out"
    assert main(["nccl", "install", str(path), "--out", str(folder), *words]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not folder.exists()


def test_a_service_needs_a_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nccl", "install", "--service", "http://127.0.0.1:9", "--out", "x"]) == 1
    assert "--service needs --library" in capsys.readouterr().err


def test_rules_of_the_host(tmp_path: Path) -> None:
    host = table_of({(ALLREDUCE, 8): [(0, AlgorithmChoice("ring_ll"))]}, library="nccl 2.30.7")
    with pytest.raises(InputError, match="NCCL's collectives are of GPU memory"):
        install(host, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is a file: give the name of a folder"):
        install(TABLE, tmp_path / "file")
    with pytest.raises(InputError, match="longer than 254 bytes, which NCCL would cut"):
        install(TABLE, tmp_path / ("n" * 120) / ("m" * 120))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_only_the_default(tmp_path: Path) -> None:
    made = install(on_shapes({(ALLREDUCE, (1, 8)): [(0, AlgorithmChoice())]}), tmp_path)
    assert (made.n_rules, made.tested_calls) == (0, 0)


def test_more_rules_than_the_plugin_takes() -> None:
    row = "allreduce,0,9,ring,ll,-1,1,8\n"
    assert with_digest_header(row * 100_000).startswith("# tuner nccl rules 1: 100000 rows, ")
    with pytest.raises(InputError, match="100001 rules for NCCL: the plugin takes 100000"):
        with_digest_header(row * 100_001)


def test_the_package_holds_the_source(tmp_path: Path) -> None:
    """As it is installed from a wheel, which is this folder."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    code = "from tuner.formats.nccl.plugin import SOURCE; print(SOURCE.read_text()[:2])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
    )
    assert done.stdout == "/*\n"
