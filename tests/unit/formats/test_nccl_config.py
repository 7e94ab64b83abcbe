"""The plugin's library asked for each call: `tuner_nccl_config` answers as the table."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.nccl import (
    COLLECTIVES,
    DECLARATIONS,
    EVERY_SHAPE,
    Asker,
    build_asker,
    every_way,
    has,
    sizes_of,
)
from tuner.core.collective import Collective
from tuner.core.table import RuleKey, TuningTable
from tuner.formats.nccl import emit_sparse
from tuner.formats.nccl.plugin import HEADER, RULES_FILE, with_digest_header
from tuner.mpi_libraries.nccl.names import algo_protos_of, name_of

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs/how-to/nccl.md"
NOTHING = "0 - 1 - -"  # no rule: the configuration as NCCL initialises it


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    folder = tmp_path_factory.mktemp("asker")
    return build_asker(folder, "address" if has("address", folder) else "")


def selection(algorithm: str) -> str:
    """Return what NCCL calls an algorithm of a table, `ring_ll` without `ring_ll128`."""
    name = algorithm.upper().replace("NVLS_TREE", "NVLSTREE")
    return f"{name}+^{name}128" if name.endswith("_LL") else name


def expected(table: TuningTable, key: RuleKey, nbytes: int) -> str:
    """Return what the program prints for a call, by the table itself."""
    rule = table.lookup(key, nbytes)
    if rule is None or rule.choice.is_default:
        return NOTHING
    algorithm = rule.choice.algorithm
    unlimited = algorithm.startswith("collnet") or (algorithm == "nvls_simple" and key.nodes > 1)
    channels = 0 if unlimited else rule.choice.params.get("channels", 0)
    return f"1 {selection(algorithm)} 0 - {channels or '-'}"


def test_it_answers_as_the_table_at_every_bound(asker: Asker) -> None:
    table, commands, answers = every_way(), list[str](), list[str]()
    for number, (nodes, ppn) in enumerate(EVERY_SHAPE):
        keys = [RuleKey(collective, nodes, ppn, "cuda") for collective in COLLECTIVES]
        rules = [rule for key in keys for rule in table.rules_for(key)]
        commands.append(f"follow {number} {nodes * ppn} {nodes}")
        answers.append(str(sum(not rule.choice.is_default for rule in rules)))
        for index, key in enumerate(keys):
            for nbytes in sizes_of(table, key):
                commands.append(f"ask {number} {index} {nbytes}")
                answers.append(expected(table, key, nbytes))
    said, errors = asker.run(commands, emit_sparse(table))
    assert [(a, b) for a, b in zip(said, answers, strict=True) if a != b] == []
    assert errors == ""
    assert len(said) > 1000


# Names of which a selection has the beginnings (src/config/algorithm_registry.cc of NCCL 2.31).
REGISTRY = {
    name_of(way).upper().replace("NVLS_TREE", "NVLSTREE")
    for collective in COLLECTIVES
    for way in algo_protos_of(collective)
}


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_selection_is_one_algorithm(asker: Asker, name: str) -> None:
    way = name.lower().replace("nvlstree", "nvls_tree")
    algorithm, _, protocol = way.rpartition("_")
    collective = "allgather" if algorithm == "pat" else "allreduce"
    row = f"{collective},0,9,{algorithm},{protocol},-1,1,8\n"
    number = 2 if algorithm == "pat" else 4
    said, _ = asker.run(["follow 0 8 1", f"ask 0 {number} 9"], row)
    selected = REGISTRY
    for condition in said[1].split()[1].split("+"):
        tagged = {known for known in REGISTRY if known.startswith(condition.removeprefix("^"))}
        selected = selected - tagged if condition.startswith("^") else selected & tagged
    assert selected == {name}


ROW = "allreduce,0,99,ring,simple,4,2,16\n"


def test_communicators_without_rules_keep_their_configuration(asker: Asker) -> None:
    commands = ["ask 0 4 9", "follow 0 16 1", "ask 0 4 9", "follow 1 16 2", "ask 1 4 9"]
    commands += ["ask 1 4 100", "ask 1 5 9", "ask 1 -1 9", "forget 1", "ask 1 4 9"]
    commands += ["follow 1 8 1", "ask 1 4 9", "follow 2 -1 2", "ask 2 4 9"]
    rule = "1 RING_SIMPLE 0 - 4"
    others = [NOTHING, NOTHING, NOTHING, NOTHING, "0", NOTHING, "-1", NOTHING]
    said, errors = asker.run(commands, ROW)
    assert said == [NOTHING, "0", NOTHING, "1", rule, *others]
    assert errors == ""


def test_a_communicator_that_is_followed_again_is_forgotten_at_once(asker: Asker) -> None:
    said, _ = asker.run(["follow 0 16 2", "follow 0 16 2", "forget 0", "ask 0 4 9"], ROW)
    assert said == ["1", "1", NOTHING]


def test_what_cannot_be_followed_is_said_once(asker: Asker) -> None:
    (asker.program.parent / RULES_FILE).write_text(with_digest_header(ROW).replace("99", "98"))
    said, errors = asker.run_as_it_is(["follow 0 16 2", "follow 1 16 2", "ask 0 4 9"])
    assert said == ["-1", "-1", NOTHING]
    (line,) = errors.splitlines()
    assert line.endswith("is damaged, or was changed by hand: NCCL decides itself on this rank")


def test_the_user_s_variables_win(asker: Asker) -> None:
    said, errors = asker.run(["follow 0 16 2", "ask 0 4 9"], ROW, NCCL_ALGO="tree")
    assert (said, errors) == (["-1", NOTHING], "")


def test_the_digest_is_printed_where_nccl_is_asked_to_speak(asker: Asker) -> None:
    said, errors = asker.run(["follow 0 16 2"], ROW, NCCL_DEBUG="INFO")
    digest = with_digest_header(ROW).split("\n")[0].rpartition(" ")[2]
    assert said == ["1"]
    assert f"1 of 1 rules (fnv1a64 {digest}) are followed on 16 ranks, 2 nodes" in errors


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_threads_with_communicators_of_their_own(sanitizer: str, tmp_path: Path) -> None:
    if not has(sanitizer, tmp_path):
        pytest.skip(f"this compiler has no {sanitizer} sanitizer, or it does not run here")
    said, _ = build_asker(tmp_path, sanitizer).run(["threads 8 20 16 2 4 9"], ROW)
    assert said == ["RING_SIMPLE"]


def example() -> str:
    """Return the program of the page on NCCL."""
    (program,) = re.findall(r"```c\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(program)


@pytest.mark.parametrize(("compiler", "suffix"), [(["cc", "-std=c99"], "c"), (["c++"], "cpp")])
def test_the_example_compiles(compiler: list[str], suffix: str, tmp_path: Path) -> None:
    source = tmp_path / f"example.{suffix}"
    source.write_text(example())
    includes = ["-I", str(DECLARATIONS), "-I", str(HEADER.parent)]
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([*compiler, *strict, *includes, "-fsyntax-only", str(source)], check=True)


def test_the_example_compiles_with_nccl_s_own_header(tmp_path: Path) -> None:
    folders = os.environ.get("NCCL_INCLUDE")
    if not folders:
        pytest.skip("NCCL_INCLUDE names no folders of nccl.h (2.31 or later) and cuda_runtime.h")
    source = tmp_path / "example.c"
    source.write_text(example())
    includes = [f"-I{folder}" for folder in (*folders.split(":"), HEADER.parent)]
    command = ["cc", "-Wall", "-Wextra", "-Werror", *includes, "-fsyntax-only", str(source)]
    subprocess.run(command, check=True)


def test_an_older_nccl_is_refused(tmp_path: Path) -> None:
    old = (DECLARATIONS / "nccl.h").read_text().replace("CODE 23102", "CODE 23007")
    (tmp_path / "nccl.h").write_text(old)
    (tmp_path / "old.c").write_text('#include "tuner_nccl.h"\n')
    includes = [f"-I{tmp_path}", f"-I{HEADER.parent}"]
    command = ["cc", *includes, "-fsyntax-only", str(tmp_path / "old.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "which NCCL has from version 2.31 on" in done.stderr


def test_the_numbers_are_nccl_s() -> None:
    """The header's numbers are those by which the plugin is asked, too."""
    names = re.findall(r"^    TUNER_NCCL_([A-Z]+),?$", HEADER.read_text(), re.MULTILINE)
    assert names == ["BROADCAST", "REDUCE", "ALLGATHER", "REDUCESCATTER", "ALLREDUCE"]
    assert COLLECTIVES[names.index("ALLREDUCE")] is Collective.ALLREDUCE
