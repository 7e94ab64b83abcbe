"""The command line as a user meets it, run in its own process where exit codes matter."""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from tuner import algorithms
from tuner.base.errors import InputError
from tuner.base.signals import EXIT_SIGNAL
from tuner.cli.commands import quickstart, study, tune
from tuner.cli.main import COMMANDS, NO_PARTIAL_OUTPUT, RESUME_HINT, main
from tuner.cli.terminal.output import print_table
from tuner.core.calibration import Calibration
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurements
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable, write_table
from tuner.mpi_libraries import LIBRARY_MODULES
from tuner.select.build_table import make_table
from tuner.workflows.active_tuning import MIN_SIMULATION_S

FLAT = "name: flat8\nnodes: 8\nlatency: 2us\nbandwidth: 12.5GB/s\n"


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    path = tmp_path / "flat8.yaml"
    path.write_text(FLAT)
    return path


def sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error."""
    lines = capsys.readouterr().err.strip().split("\n")
    assert len(lines) == 1
    assert lines[0].startswith("tuner: ")
    return lines[0]


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_explains_itself_with_examples(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert f"tuner {verb}" in text


@pytest.mark.parametrize("action", ["show", "export", "check", "validate"])
def test_every_table_action_takes_json(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["table", action, "--help"])
    assert "--json" in capsys.readouterr().out


def test_help_names_all_verbs_and_loads_no_heavy_library() -> None:
    program = (
        "import sys\nfrom tuner.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'sklearn', 'numba', 'matplotlib', 'sqlalchemy', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for verb in COMMANDS:
        assert verb in ran.stdout


PREDICTION = """
import os, sys
from tuner.cli.main import main

assert main(sys.argv[1:]) == 0
from tuner.machines import known_gpus

heavy = {
    *("concurrent.futures.process", "matplotlib", "numba.np.arrayobj", "scipy.linalg"),
    *("scipy.sparse", "simpy", "sklearn"),
} & set(sys.modules)
print(*sorted(heavy), known_gpus.cache_info().currsize, len(os.listdir("/proc/self/task")))
"""


@pytest.mark.representative("ring")
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner"])
def test_a_prediction_loads_only_what_it_needs(algorithm: str, flat: Path) -> None:
    words = ["--collective", "allreduce", "--algorithm", algorithm, "--sizes", "1MiB"]
    program = [sys.executable, "-c", PREDICTION, "simulate", "--topology", str(flat), *words]
    for _ in range(2):  # the first one may have to compile
        ran = subprocess.run(program, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "0 1"


def test_simulate_prints_records_that_match_the_closed_form(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--collective", "allreduce", "--algorithm", "ring", "--sizes", "8KiB,1MiB", "--json"]
    assert main(["simulate", "--topology", str(flat), *words]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["nbytes"] for record in records] == [8192, 1 << 20]
    for record in records:
        assert set(record) == {
            "collective",
            "algorithm",
            "params",
            "p",
            "nbytes",
            "seconds",
            "predicted_by",
        }
        assert record["p"] == 8
        # 2 (p - 1) transfers of m / p bytes, one after the other
        expected = 14 * (2e-6 + record["nbytes"] / 8 / 12.5e9)
        assert record["seconds"] == pytest.approx(expected, rel=1e-9)


def test_both_engines_print_the_same(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--collective", "bcast", "--sizes", "1KiB,64KiB", "--json"]
    printed = []
    for engine in ("fast", "events"):
        assert main(["simulate", "--topology", str(flat), *words, "--engine", engine]) == 0
        printed.append([record["seconds"] for record in json.loads(capsys.readouterr().out)])
    assert len(printed[0]) == 2 * len(algorithms.algorithm_names(Collective.BCAST))
    assert printed[0] == pytest.approx(printed[1], rel=1e-12)


def test_simulate_text_shows_units(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--collective", "bcast", "--algorithm", "pipeline", "--sizes", "1MiB"]
    assert main(["simulate", "--topology", str(flat), *words, "--param", "segment=64KiB"]) == 0
    text = capsys.readouterr().out
    assert "segment=64KiB" in text
    assert "1MiB" in text
    assert "us" in text


def test_a_segment_size_changes_the_prediction(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--collective", "bcast", "--algorithm", "pipeline", "--sizes", "16MiB", "--json"]
    times = []
    for param in ("segment=0", "segment=64KiB"):
        assert main(["simulate", "--topology", str(flat), *words, "--param", param]) == 0
        times.append(json.loads(capsys.readouterr().out)[0]["seconds"])
    assert times[1] < times[0] / 3  # seven hops one after the other against a full pipeline


@pytest.mark.parametrize(
    ("words", "says", "status"),
    [
        (["--collective", "bcast", "--algorithm", "nope", "--sizes", "1KiB"], "nope", 2),
        (["--collective", "gossip", "--sizes", "1KiB"], "gossip", 2),
        (["--collective", "bcast", "--sizes", "1KiBB"], "1KiBB", 2),
        (["--collective", "bcast", "--sizes", "1KiB", "--param", "radix"], "radix=4", 2),
        (
            [
                "--collective",
                "bcast",
                "--algorithm",
                "linear",
                "--sizes",
                "1KiB",
                "--param",
                "segment=8",
            ],
            "segment",
            1,
        ),
        (
            ["--collective", "bcast", "--sizes", "1KiB", "--ppn", "0"],
            "'0' is not a whole number",
            2,
        ),
        (["--collective", "bcast", "--sizes", "1KiB", "--ranks", "99"], "99 ranks", 1),
        (["--collective", "bcast", "--sizes", "1KiB", "--root", "8"], "root", 1),
        (["--collective", "bcast", "--sizes", "1KiB", "--calibration", "none.js"], "none.js:", 1),
    ],
)
def test_bad_input_gets_one_sentence_and_its_status(
    words: list[str], says: str, status: int, flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--topology", str(flat), *words]) == status
    assert says in sentence(capsys)


def test_a_disconnected_topology_names_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(
        "name: broken\nnodes: [a, b, lonely]\nlinks:\n"
        "  - {between: [a, b], latency: 1us, bandwidth: 1GB/s}\n"
    )
    words = ["--collective", "bcast", "--sizes", "1KiB"]
    assert main(["simulate", "--topology", str(path), *words]) == 1
    assert "lonely" in sentence(capsys)


def test_a_library_without_tables_is_named() -> None:
    cluster = Cluster("ares", 1, 2, "any cpu", 2**30)
    calibration = Calibration("ares", "cray 8.1", {}, {})
    with pytest.raises(InputError, match=r"for 'cray 8\.1', only for openmpi and mpich"):
        make_table(Measurements(cluster, "cray 8.1", {}, ()), calibration)


def test_a_table_in_a_pipe_is_as_wide_as_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [f"{letter * 30}." for letter in "abcdefgh"]
    print_table("", cells, [cells])
    printed = capsys.readouterr().out
    assert [printed.count(cell) for cell in cells] == [2] * len(cells)


def test_what_people_named_is_printed_as_they_wrote_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("[red]twice[/blue]", f"[bold]{'size' * 9}", "[/a]")
    print_table(words[0], (words[1],), [(words[2],)])
    printed = capsys.readouterr().out
    assert [word for word in words if word not in printed] == []


def test_wrong_usage_is_status_2() -> None:
    for words in (["dance"], ["simulate"], ["table", "polish"], ["--nothing"]):
        ran = subprocess.run(
            [sys.executable, "-m", "tuner.cli.main", *words], capture_output=True, text=True
        )
        assert ran.returncode == 2
        assert "usage:" in ran.stderr
        assert "Traceback" not in ran.stderr


SIMULATE = "simulate --topology preset:summit:2 --sizes 1KiB"


@pytest.mark.parametrize(
    ("words", "meant", "status"),
    [
        ("tabel show t.json", "table", 2),
        ("topo list", "topology", 2),
        ("table expot t.json", "export", 2),
        ("--verison", "--version", 2),
        ("help tabel", "table", 2),
        ("table export t.json --fromat=openmpi", "--format", 2),
        ("table export t.json --format openmpi --outt x", "--out", 2),
        ("table export t.json --format openmpy", "openmpi", 2),
        ("import-results x --out y --format nccl-test", "nccl-tests", 2),
        ("probe plann", "plan", 2),
        ("quickstart --libraries mpihc", "mpich", 2),
        ("token create me --scope raed", "read", 2),
        ("select t.json --collective allrduce --ranks 4 --size 1", "allreduce", 2),
        (f"{SIMULATE} --collective allreduce --algorithm rign", "ring", 2),
        ("simulate --topology preset:sumit --sizes 1KiB --collective bcast", "summit", 1),
        ("topology show sumit", "summit", 1),
    ],
)
def test_a_name_that_is_mistyped_is_answered_with_the_closest(
    words: str, meant: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main(words.split())
    except SystemExit as left:
        ended = int(left.code or 0)
    assert ended == status
    assert f"(did you mean {meant!r}?)" in capsys.readouterr().err


def test_a_name_like_no_other_suggests_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["xylophone"])
    said = capsys.readouterr().err
    assert "unknown command 'xylophone'; `tuner --help` explains" in said
    assert len(said.splitlines()) == 2  # a short usage before it


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The output of a command that succeeds."""
    with suppress(SystemExit):
        assert main(words) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


@pytest.mark.parametrize("words", ["", "table", "table export", "topology draw", "probe"])
def test_help_is_a_command_too(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = printed(capsys, *words.split(), "--help")
    assert expected.startswith(f"usage: tuner {words}".rstrip())
    assert printed(capsys, "help", *words.split()) == expected


def test_without_words_the_next_commands_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each library has its own table, which programs of the others cannot follow."""
    monkeypatch.chdir(tmp_path)
    for library in ("mpich", "openmpi"):
        table = tmp_path / "tuner-out" / library / "table.json"
        table.parent.mkdir(parents=True)
        table.touch()
    lines = printed(capsys).splitlines()
    assert lines[0] == "This computer has tuning tables for MPICH and Open MPI."
    commands = [line.split()[1] for line in lines if line.startswith("  tuner ")]
    assert commands == ["run", "run", "table", "studio", "FILE"]
    assert [line.partition("# with ")[2] for line in lines[2:4]] == ["MPICH", "Open MPI"]
    assert max(map(len, lines)) <= 80


def test_without_words_the_first_commands_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = printed(capsys).splitlines()
    commands = [line.split()[1] for line in lines if line.startswith("  tuner ")]
    assert commands == ["doctor", "quickstart", "studio", "FILE"]
    assert "`tuner help`" in lines[-1]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_exit_status(
    sent: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def signalled(_: object) -> None:
        os.kill(os.getpid(), sent)

    monkeypatch.setattr(tune, "run", signalled)
    assert main(["tune", "--measurements", "m.ndjson", "--out", "t.json"]) == 128 + sent
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        ("probe plan --sizes 3XB", 2, "'3XB' is not a size: write it like 64KiB"),
        ("probe plan --budget 5", 2, "'5' is not a time"),
        ("probe plan --ranks 0", 2, "'0' is not a whole number from 1 on"),
        ("probe plan --hosts a,,b", 2, "'a,,b' is not a list of names"),
        ("probe plan --launcher x", 2, "it needs the word {program}"),
        ("probe plan --hostfile none", 1, "none: cannot be read as a list of hosts"),
        ("select none.json --collective shout --ranks 4 --size 1", 2, "unknown collective 'shout'"),
        (
            "select none.json --collective bcast --ranks -4 --size 1",
            2,
            "'-4' is not a whole number from 1 on",
        ),
        ("select none.json --collective bcast --ranks 4 --size 1", 1, "none.json: "),
    ],
)
def test_words_that_cannot_be_read_are_status_2_and_all_else_is_1(
    words: str, status: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == status
    said = capsys.readouterr().err
    assert said.startswith("tuner: ")
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    ["quickstart --out {}", "quickstart --restart --out {}", "calibrate m.ndjson --plots {}"],
)
def test_a_file_where_a_folder_is_wanted_is_one_sentence(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f"
    path.write_text("mine")
    assert main([word.format(path) for word in words.split()]) == 1
    assert sentence(capsys) == f"tuner: {path} is a file: give the name of a folder"
    assert path.read_text() == "mine"


def test_one_rank_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "q"
    assert main(["quickstart", "--ranks", "1", "--out", str(out)]) == 2
    assert sentence(capsys) == "tuner: one rank exchanges no messages: --ranks is at least 2"
    assert not out.exists()


def test_measurements_that_are_not_there_come_before_a_calibration_that_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--measurements", str(tmp_path / "no"), "--out", str(tmp_path / "t.json")]
    assert main(["tune", *words]) == 1
    assert f"{tmp_path / 'no'}: cannot be read as measurements" in sentence(capsys)


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = f"set -o pipefail; {sys.executable} -m tuner.cli.main algorithms --json | head -n 1"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("[\n", "")
    assert ran.returncode in (0, EXIT_SIGNAL + signal.SIGPIPE)  # 0: a pipe takes the whole output


@pytest.mark.parametrize(
    "words",
    ["", "--help", "help table", "table export --help", "--version", "topology list", "algorithms"],
)
def test_a_reader_that_has_gone_is_no_error(words: str) -> None:
    """The reader is gone before anything is written."""
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "tuner", *words.split()]
    ran = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    assert (ran.returncode, ran.stderr) == (EXIT_SIGNAL + signal.SIGPIPE, "")


@pytest.mark.parametrize("words", ["algorithms --json", "topology list"])
def test_a_full_disk_at_standard_output_is_one_sentence(words: str) -> None:
    """A limit on file sizes refuses the output as a full disk does.

    It must not cut cached bytecode (``-B``), which later tests import.
    """
    run = f"unset PYTHONUNBUFFERED; ulimit -f 1; exec {sys.executable} -B -m tuner.cli.main {words}"
    with tempfile.TemporaryFile() as out:
        ran = subprocess.run(["bash", "-c", run], stdout=out, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "tuner: standard output cannot be written: File too large\n"


def test_algorithms_lists_each_with_formula_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algorithms", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    known = {(record["collective"], record["algorithm"]) for record in records}
    assert {("bcast", "split_binary"), ("allreduce", "rabenseifner")} <= known
    assert all(record["formula"] and record["source"] for record in records)
    assert main(["algorithms", "--collective", "bcast"]) == 0
    assert "scatter_allgather_ring" in capsys.readouterr().out


def test_rules_of_a_cluster_say_which_hosts_and_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.json"
    keys = [RuleKey(Collective.BCAST, 4, 2), RuleKey(Collective.BCAST, 1, 8, "cuda")]
    rules = tuple(Rule(key, 0, math.inf, AlgorithmChoice(), Evidence("none")) for key in keys)
    write_table(TuningTable(Cluster("node", 4, 2, "some", 0), "openmpi 5.0.11", rules), path)
    assert main(["table", "show", str(path)]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "openmpi 5.0.11 on cluster node (4 hosts): 2 rules"
    shown = [line.split() for line in lines if line.strip().startswith("bcast")]
    assert [words[:2] for words in shown] == [["bcast", "cuda"], ["bcast", "4x2"]]


def test_a_time_to_wait_has_minutes_in_its_example(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        "tune --budget 10 --measurements m --out t",
        "quickstart --budget 10m",
        "probe --budget 5 --out m",
        "emulate run f --timeout 1 x",
    ):
        assert main(words.split()) == 2
        assert "write it like 90s, 10min, 2h or 30d" in sentence(capsys)


def test_select_says_on_how_many_nodes_a_table_has_as_many_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tuple(
        Rule(
            RuleKey(Collective.BCAST, nodes, 8 // nodes),
            0,
            math.inf,
            AlgorithmChoice(),
            Evidence("none"),
        )
        for nodes in (2, 4)
    )
    path = tmp_path / "table.json"
    write_table(TuningTable(Cluster("lab", 4, 2, "", 0), "openmpi 5.0.11", rules), path)
    asked = ["select", str(path), "--collective", "bcast", "--size", "64KiB", "--ranks"]
    assert main([*asked, "8"]) == 1
    assert sentence(capsys).endswith(": add --nodes 2 or --nodes 4")
    assert main([*asked, "8", "--nodes", "4"]) == 0
    assert main([*asked, "6"]) == 1
    assert "--nodes" not in sentence(capsys)
    assert main([*asked, "1", "--nodes", "3"]) == 2
    assert "1 rank cannot be spread evenly over 3 nodes" in sentence(capsys)
    assert main([*asked, "8", "--nodes", "4", "--group", "lumi"]) == 2
    assert "--group is for a trained selector" in sentence(capsys)


def test_a_table_is_not_sought_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "show", str(tmp_path)]) == 1
    assert sentence(capsys).endswith(" is a folder: name the table in it")


@pytest.mark.parametrize(
    ("resumes", "said"), [(True, RESUME_HINT.format(" again")), (False, NO_PARTIAL_OUTPUT)]
)
def test_only_who_can_go_on_promises_it(
    resumes: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tune` measures hosts, or makes a table of what there is."""

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "_measure_and_tune" if resumes else "_make_table", ended)
    hosts = ["--hosts", "a,b"] if resumes else []
    words = ["tune", "--measurements", "m.ndjson", "--out", "t.json", *hosts]
    assert main(words) == EXIT_SIGNAL + signal.SIGINT
    assert capsys.readouterr().err == f"\ntuner: interrupted; {said}\n"


@pytest.mark.parametrize(
    ("verb", "words"), [(study, ["study", "s.yaml"]), (quickstart, ["quickstart", "--out", "q"])]
)
def test_who_starts_afresh_goes_on_without_that(
    verb: ModuleType,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ended(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "run", ended)
    for more, said in (([], "the same command again"), (["--restart"], "the same command without")):
        assert main([*words, *more]) == EXIT_SIGNAL + signal.SIGINT
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("library", LIBRARY_MODULES)
def test_the_usual_budget_of_each_library_leaves_time_for_simulations(library: str) -> None:
    usual = quickstart.budget_of(library, quickstart.DEFAULT_BUDGET_S)
    assert usual >= 1.25 * MIN_SIMULATION_S
    assert quickstart.budget_of(library, 12.0) == 12.0
