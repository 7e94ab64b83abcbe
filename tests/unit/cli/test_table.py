"""`tuner table export` and `check`, for every format."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.ladders import CLUSTER, table_of
from tests.support.terminals import screen
from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Evidence, TuningTable, read_table, write_table
from tuner.formats.registry import FORMATS
from tuner.launch import Launcher

ALLREDUCE = Collective.ALLREDUCE
OF = {
    "openmpi": ("openmpi 5.0.11", "ring", "recursive_doubling"),
    "openmpi-han": ("openmpi 5.0.11", "ring", "default"),
    "openmpi-json": ("openmpi 6.0.0", "ring", "recursive_doubling"),
    "mvapich2": ("mvapich2 2.3.7", "rabenseifner", "recursive_doubling"),
    "intelmpi": ("intelmpi 2021.18.1", "preset_5", "preset_16"),
    "ucc": ("ucc 1.8.0", "ring", "knomial"),
    "nccl": ("nccl 2.30.7", "ring_ll", "tree_ll"),
}
OTHER = {"nccl": "ring_simple", "intelmpi": "preset_2"}

OPTIONS = {
    "ranks": ("--ranks", "8"),
    "fallback_algorithm": ("--fallback-algorithm", "ring_simple"),
    "base_rules": ("--base-rules", "generic.json"),
    "commutative_only": ("--commutative-only",),
}


@pytest.fixture(params=sorted(set(FORMATS) - {"mpich", "mpich-device", "mvapich"}))
def form(request: pytest.FixtureRequest) -> str:
    """Every format but those that need a library's own rules."""
    return str(request.param)


@pytest.fixture
def table(form: str, tmp_path: Path) -> Path:
    """Two rules on 8 ranks, the first of them for commutative operators in most libraries."""
    library, first, second = OF[form]
    made = table_of(
        {
            (ALLREDUCE, 8): [(0, AlgorithmChoice(second)), (4096, AlgorithmChoice(second))],
            (ALLREDUCE, 8, "commutative"): [
                (0, AlgorithmChoice(first)),
                (4096, AlgorithmChoice(second)),
            ],
        }
    )
    memory = "cuda" if form == "nccl" else "host"
    nodes = 2 if form == "openmpi-han" else 1
    rules = tuple(
        replace(r, key=replace(r.key, memory=memory, nodes=nodes, ppn=8 // nodes))
        for r in made.rules
    )
    path = tmp_path / "table.json"
    write_table(TuningTable(CLUSTER, library, rules), path)
    return path


def test_a_file_is_that_of_its_table(
    form: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    words = ["--commutative-only"] * ("commutative_only" in FORMATS[form].used_options)
    assert main(["table", "export", str(table), "--format", form, "--out", str(file), *words]) == 0
    assert main(["table", "check", str(file), "--table", str(table), *words]) == 0
    said = capsys.readouterr().out
    assert main(["table", "show", str(table), "--json"]) == 0
    number = len(json.loads(capsys.readouterr().out)["rules"])
    assert main(["table", "show", str(table)]) == 0
    assert f": {number} rules\n" in capsys.readouterr().out
    assert f"{file}: the decisions of {number} rules, 0 of them lost to the default" in said
    assert f"no differences from the {number} rules of {table}" in said
    assert main(["table", "check", str(file), "--table", str(table), *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == form
    changed = file.read_text().replace("4095", "4094").replace("4096", "4095")
    file.write_text(changed)
    assert main(["table", "check", str(file), "--table", str(table), *words]) == 1
    assert "allreduce of 4095 bytes" in capsys.readouterr().out
    file.write_text("nonsense\n")
    assert main(["table", "check", str(file), "--table", str(table)]) == 1
    assert str(file) in capsys.readouterr().err


def test_tables_of_other_libraries_are_refused(
    form: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "mpich" if form != "mpich" else "openmpi"
    assert main(["table", "export", str(table), "--format", other]) == 1
    assert f"mean nothing in the format of {other}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "library", ["nccl 2.30.7", "rccl 2.27", "ucc 1.8.0", "mvapich 4.0", "openmpi 6.0.0"]
)
def test_what_cannot_be_started_is_never_proved(
    library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_of({(ALLREDUCE, 8): [(0, AlgorithmChoice())]}, library=library)
    write_table(table, tmp_path / "t.json")
    name = library.partition(" ")[0]
    for words in ((), ("--library", name), ("--json",)):
        assert main(["table", "validate", str(tmp_path / "t.json"), *words]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert "nothing is validated: " in said.err
        assert "`tuner table check`" in " ".join(said.err.split())
        assert "(--format" not in said.err


def test_what_a_file_has_no_use_for_is_refused(
    form: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "file"
    for name in sorted(OPTIONS.keys() - FORMATS[form].used_options):
        asked = ["table", "export", str(table), "--format", form, *OPTIONS[name]]
        assert main([*asked, "--out", str(out)]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert said.startswith(f"tuner: {OPTIONS[name][0]} is for files of ")
        assert said.endswith(f"; {form} has no use for it: leave it out")
        assert not out.exists()


def test_an_interpreter_is_refused_where_no_rules_are_read_with_it(
    form: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["table", "export", str(table), "--format", form, "--python", str(tmp_path / "python")]
    refused = "base_rules" not in FORMATS[form].used_options
    assert main(words) == (2 if refused else 1)
    said = " ".join(capsys.readouterr().err.split())
    assert ("--python is for files of mpich" in said) == refused


@pytest.mark.parametrize(
    ("library", "words", "said"),
    [
        ("openmpi 5.0.11", ["--ranks", "2"], "--ranks is for files of intelmpi, mvapich2; openmpi"),
        ("mpich 5.0.2", ["--ranks", "2"], "--ranks is for files of intelmpi, mvapich2; mpich"),
        (
            "mpich 5.0.2",
            ["--fallback-algorithm", "x"],
            "--fallback-algorithm is for files of nccl, intelmpi",
        ),
        (
            "mpich 5.0.2",
            ["--base-rules", "g.json"],
            "validation uses the rules of the library that runs",
        ),
    ],
)
def test_a_proof_refuses_what_it_has_no_use_for(
    library: str, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(
        table_of({(ALLREDUCE, 2): [(0, AlgorithmChoice())]}, library=library), tmp_path / "t.json"
    )
    assert main(["table", "validate", str(tmp_path / "t.json"), *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_more_hosts_than_given_cannot_be_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], launcher: Launcher
) -> None:
    made = table_of({(ALLREDUCE, 8): [(0, AlgorithmChoice())]}, library=launcher.version())
    rules = tuple(replace(r, key=replace(r.key, nodes=4, ppn=2)) for r in made.rules)
    write_table(TuningTable(CLUSTER, made.library, rules), tmp_path / "t.json")
    for hosts, said in (("a,b", "the 2 hosts given"), ("a", "the 1 host given")):
        assert main(["table", "validate", str(tmp_path / "t.json"), "--hosts", hosts]) == 1
        assert f"rules for 4 hosts, more than {said}" in capsys.readouterr().err


def test_what_is_no_text_is_no_file_of_a_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, file = tmp_path / "t.json", tmp_path / "rules"
    write_table(table_of({(ALLREDUCE, 4): [(0, AlgorithmChoice())]}), table)
    file.write_bytes(b"\xff\xfe\x00rules")
    assert main(["table", "check", str(file), "--table", str(table)]) == 1
    said = capsys.readouterr().err
    assert said == f"tuner: {file}: no text in it: give a file in a library's own format\n"


def test_every_format_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "library-formats.md").read_text()
    table = page[page.index("| format | for |") : page.index("`export --out`")]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()[2:] if row]
    assert {row[0].strip("`"): row[2] for row in rows} == {
        name: form.usage for name, form in FORMATS.items()
    }


def test_a_table_is_written_by_hand_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "library-formats.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert main(["table", "export", "table.json", "--format", "intelmpi"]) == 0
    assert "ALLREDUCE='5:0-65535;16'" in capsys.readouterr().out
    where = "docs/reference/library-formats.md shows"
    with pytest.raises(InputError, match=rf"only for openmpi and mpich: .* {where}"):
        mpi_libraries.library_module("intelmpi 2021.18.1")


def test_shapes_of_as_many_ranks_are_exported_one_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [
        replace(rule, key=replace(rule.key, nodes=nodes, ppn=8 // nodes))
        for nodes, name in ((4, "ring"), (8, "rabenseifner"))
        for rule in table_of(
            {(ALLREDUCE, 8): [(0, AlgorithmChoice()), (4096, AlgorithmChoice(name))]}
        ).rules
    ]
    path, file = tmp_path / "table.json", tmp_path / "file"
    write_table(TuningTable(CLUSTER, "openmpi 5.0.11", tuple(rules)), path)
    words = ["table", "export", str(path), "--format", "openmpi", "--out", str(file)]
    words.append("--commutative-only")
    assert main(words) == 1
    assert "(--ppn)" in capsys.readouterr().err
    assert main([*words, "--ppn", "2"]) == 0
    said = "the file also decides for allreduce on 8x1, where the table says otherwise: --ppn"
    assert said in capsys.readouterr().err
    ring = file.read_text()
    assert main([*words, "--ppn", "1"]) == 0
    assert "# ring" in ring
    assert "# rabenseifner" in file.read_text()
    assert main([*words, "--ppn", "3"]) == 1
    assert "no rules for 3 ranks per node: it knows 1, 2" in capsys.readouterr().err


def test_rules_that_a_file_cannot_hold_are_named_with_what_holds_them(
    table: Path, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "file")
    assert main(["table", "export", str(table), "--format", form, "--out", file]) == 0
    said = capsys.readouterr().out
    hint = "for commutative operators alone left out: --commutative-only has them"
    assert (hint in said) == ("commutative_only" in FORMATS[form].used_options)
    rules = read_table(table).rules
    safe = sum(rule.key.operators == "any" for rule in rules)
    held = f"the decisions of {safe} of {len(rules)} rules,"
    assert (held in said) == ("commutative_only" in FORMATS[form].used_options)


@pytest.mark.parametrize(("form", "name"), [("nccl", "tree_simple"), ("intelmpi", "preset_1")])
def test_a_stand_in_for_the_default_is_told(
    form: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """When it is written, and to who compares the file without naming it, once for each call."""
    library, first, _ = OF[form]
    made = table_of(
        {(ALLREDUCE, 8): [(0, AlgorithmChoice()), (4096, AlgorithmChoice(first))]}, library=library
    )
    memory = "cuda" if form == "nccl" else "host"
    rules = tuple(replace(r, key=replace(r.key, memory=memory)) for r in made.rules)
    path, file = str(tmp_path / "table.json"), str(tmp_path / "file")
    write_table(TuningTable(CLUSTER, library, rules), Path(path))
    words, wish = ["table", "export", path, "--format", form], ["--fallback-algorithm", name]
    assert main([*words, *wish]) == 0
    stands = f"1 rule leaves the choice to the library: there the file forces a fallback ({wish[0]}"
    assert stands in capsys.readouterr().err
    assert main([*words, *wish, "--out", file]) == 0
    assert stands in capsys.readouterr().out
    assert main([*words, *wish, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["default_replaced"] == 1
    check = ["table", "check", file, "--table", path]
    assert main([*check, *wish]) == 0
    lost = "the table leaves it to the library, for which "
    for given, told in (
        ([], "a fallback must be named (--fallback-algorithm); the "),
        ([wish[0], OTHER[form]], f"{OTHER[form]} stands; the "),
    ):
        capsys.readouterr()
        assert main([*check, *given]) == 1
        said = [line for line in capsys.readouterr().out.splitlines() if " of 4095 bytes" in line]
        assert len(said) == 1
        assert lost + told in said[0]
        assert said[0].endswith(f" {name}")


def test_a_file_is_written_with_how_it_is_used(
    form: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a file"
    words = ["table", "export", str(table), "--format", form, "--out", str(file)]
    assert main(words) == 0
    _, typed, remark = FORMATS[form].usage.split("`", 2)
    typed, remark = typed.replace("$PWD/FILE", repr(str(file))), remark.replace("`", "")
    beside = f"({remark.lstrip(',; ')})\n" if remark else ""
    parameters = re.findall(r"--mca (\S+) ('.*?'|\S+)", typed)
    variables = " ".join(f"OMPI_MCA_{name}={value}" for name, value in parameters)
    other = f"or, under any launcher, such as srun: export {variables}" if variables else ""
    said = " ".join(capsys.readouterr().out.split())
    assert " ".join(f"use it: {typed}\n{beside}{other}".split()) in said
    assert str(file) in typed
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["usage"] == typed + remark


def test_a_rule_that_ends_programs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Open MPI divides a segment by the size of the datatype, which may be 0."""
    table, file = tmp_path / "t.json", tmp_path / "openmpi.rules"
    choice = AlgorithmChoice("split_binary", {"segment": 1024})
    told = "may divide a segment by the size of the datatype, which is 0 in some calls of 0 bytes"
    write_table(table_of({(Collective.BCAST, 3): [(0, choice)]}), table)
    assert main(["table", "export", str(table), "--format", "openmpi", "--out", str(file)]) == 0
    assert main(["table", "check", str(file), "--table", str(table)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    rule = "bcast on 3 ranks, [0, inf) bytes: 'split_binary(segment=1024)'"
    assert f"{table}: {rule}: Open MPI 5.0.11 {told}" in said
    assert said.endswith("let the rule start at 1 byte")
    write_table(table_of({(Collective.BCAST, 3): [(0, AlgorithmChoice()), (1, choice)]}), table)
    assert main(["table", "check", str(file), "--table", str(table)]) == 0
    file.write_text(file.read_text().replace("0 0 0 0 # default\n1 4", "0 4 0 1024\n1 4"))
    assert main(["table", "check", str(file), "--table", str(table)]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"{file}: rules file, line 9: Open MPI {told}" in said


def test_a_file_of_another_library_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, file = tmp_path / "t.json", tmp_path / "rules"
    for library, text, own in (("mpich 5.0.2", "2 1\n", "JSON"), ("ucc 1.8.0", "{}", "not JSON")):
        write_table(table_of({(ALLREDUCE, 4): [(0, AlgorithmChoice())]}, library=library), table)
        file.write_text(text)
        assert main(["table", "check", str(file), "--table", str(table)]) == 1
        said = capsys.readouterr().err
        assert f"this is not a file of {library.split()[0]}, whose files are {own}:" in said


def test_who_has_rules_for_some_operators_alone_is_told_how_to_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = table_of({(ALLREDUCE, 4, "commutative"): [(0, AlgorithmChoice())]})
    write_table(made, tmp_path / "t.json")
    asked = ["select", str(tmp_path / "t.json"), "--collective", "allreduce", "--size", "1KiB"]
    assert main([*asked, "--ranks", "4"]) == 1
    said = capsys.readouterr().err
    assert said.endswith(": only for operators that commute; add --operators commutative\n")
    assert main([*asked, "--ranks", "4", "--operators", "commutative"]) == 0


@pytest.mark.slow
def test_gains_that_were_not_measured_are_marked_also_where_the_basis_has_no_room(
    tmp_path: Path,
) -> None:
    made = table_of({(ALLREDUCE, 8, "commutative"): [(0, AlgorithmChoice("x" * 18))]})
    told = Evidence("simulated", (4096, 65536), (2e-5, 4e-5), (1e-5, 2e-5), gain=2.0)
    simulated = replace(made.rules[0], stop_bytes=100_000, evidence=told)
    measured = replace(
        simulated,
        start_bytes=100_000,
        stop_bytes=math.inf,
        evidence=replace(told, basis="measured", gain=3.0),
    )
    path = tmp_path / "table.json"
    write_table(TuningTable(CLUSTER, made.library, (simulated, measured)), path)
    words = [sys.executable, "-m", "tuner", "table", "show", str(path)]
    status, said = screen(words, 80, ROOT)
    assert status == 0
    assert "no room for bytes, default, chosen, basis" in said
    assert "~2.00" in said
    assert " 3.00" in said
    assert "~: simulated, or learned from other calls, but not measured" in said


@pytest.mark.parametrize(
    ("form", "library"),
    [
        ("openmpi", "openmpi 5.0.11"),
        ("openmpi-json", "openmpi 6.0.0"),
        ("ucc", "ucc 1.8.0"),
        ("intelmpi", "intelmpi 2021.18.1"),
        ("mvapich2", "mvapich2 2.3.7"),
        ("nccl", "nccl 2.30.7"),
    ],
)
@pytest.mark.parametrize("memory", ["host", "cuda", "\x1b[3m"])
def test_names_in_a_table_do_not_reach_the_terminal_as_they_are(
    form: str, library: str, memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for params in ({}, {"segment": 8}):
        made = table_of({(ALLREDUCE, 4): [(0, AlgorithmChoice("[2J", params))]}, library=library)
        rules = tuple(replace(rule, key=replace(rule.key, memory=memory)) for rule in made.rules)
        write_table(TuningTable(CLUSTER, library, rules), tmp_path / "t.json")
        plain = (tmp_path / "t.json").read_text()
        for text, told in ((plain, "[2J"), (plain.replace("[2J", "\\u001b[2J"), "\\x1b[2J")):
            (tmp_path / "t.json").write_text(text)
            assert main(["table", "export", str(tmp_path / "t.json"), "--format", form]) == 1
            said = capsys.readouterr()
            assert told in said.err
            assert "\x1b" not in said.err + said.out
