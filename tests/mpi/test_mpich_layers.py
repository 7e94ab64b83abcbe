"""Which layer of a real MPICH answers a call: seen by leaves that end the program.

TUNER_MPICH_PYTHONS names interpreters of further environments, separated by `:`, each with another
version of MPICH.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.support.ladders import Rungs, table_of
from tests.support.waiting import patience
from tuner.base.thread_levels import THREAD_LEVELS, THREAD_SINGLE
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK
from tuner.core.table import AlgorithmChoice, Rule, TuningTable
from tuner.formats import mpich
from tuner.formats.mpich import Leaf, emitter
from tuner.formats.mpich import device as layer
from tuner.formats.mpich.branches import RuleToLeaf, merge_into_generic
from tuner.formats.mpich.default_algorithms import find_default_algorithms
from tuner.launch import CompletedRun, Launcher
from tuner.validation.validate_mpich import FAULT_MESSAGE, activation, validate

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
PROGRAM = Path(__file__).with_name("layers_program.py")
FURTHER = [path for path in os.environ.get("TUNER_MPICH_PYTHONS", "").split(os.pathsep) if path]
# Bytes; rules are from RULED to LARGE.
KEPT = 1024
RULED = 65536
LARGE = 1 << 20
MULTIPLE = THREAD_LEVELS[-1]


@dataclass(frozen=True)
class Watched:
    """Starts ranks, and keeps how many in each launch.

    deaf    they do not get the device layer's file
    """

    launcher: Launcher
    deaf: bool = False
    launches: list[int] = field(default_factory=list)

    @property
    def library(self) -> str:
        return self.launcher.library

    def run(
        self,
        ranks: int,
        arguments: Sequence[str],
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], float | None] | None = None,
        timeout: float | None = None,
        silence_timeout: float | None = None,
        check: bool = True,
    ) -> CompletedRun:
        lost = {mpich.DEVICE.variable} if self.deaf else set[str]()
        left = {name: value for name, value in (settings or {}).items() if name not in lost}
        self.launches.append(ranks)
        return self.launcher.run(
            ranks,
            arguments,
            settings=left,
            environment=environment,
            on_line=on_line,
            timeout=timeout,
            silence_timeout=silence_timeout,
            check=check,
        )


@pytest.fixture(scope="module", params=["", *FURTHER])
def mpich_of_each_version(request: pytest.FixtureRequest) -> Launcher:
    if request.param:
        return Launcher.find("mpich", Path(request.param))
    found: Launcher = request.getfixturevalue("mpich_launcher")
    return found


@pytest.fixture(scope="module")
def trees(mpich_of_each_version: Launcher) -> mpich.GenericTrees:
    return mpich.read_generic_trees(mpich_of_each_version.libmpi())


def table_for(launcher: Launcher) -> TuningTable:
    """Rules in the middle, for both collectives on two ranks.

    MPICH makes calls of less than 1 KiB of its own, so the default has a range without these.
    """
    binomial, rabenseifner = AlgorithmChoice("binomial"), AlgorithmChoice("rabenseifner")

    def rungs(choice: AlgorithmChoice) -> Rungs:
        return [
            (0, AlgorithmChoice()),
            (KEPT, AlgorithmChoice()),
            (RULED, choice),
            (LARGE, AlgorithmChoice()),
        ]

    return table_of(
        {
            (BCAST, 2): rungs(binomial),
            (ALLREDUCE, 2): [(0, AlgorithmChoice())],
            (ALLREDUCE, 2, "commutative"): rungs(rabenseifner),
        },
        probed=(16, 4096, 2 * RULED),
        library=launcher.version(),
    )


def ended(
    launcher: Launcher,
    settings: Mapping[str, str],
    calls: Sequence[str],
    level: str = THREAD_SINGLE,
    ranks: int = 2,
) -> tuple[int, str]:
    """Return how many calls were done, and in which source MPICH met an impossible leaf."""
    words = ["-m", "mpi4py", "-rc", f"thread_level={level}", str(PROGRAM), *calls]
    settings = {**settings, "MPI4PY_RC_THREAD_LEVEL": level}  # it precedes the option
    run = launcher.run(ranks, words, settings=settings, timeout=patience(), check=False)
    met = FAULT_MESSAGE.search(run.stderr)
    assert met or run.returncode == 0, run.stderr
    return run.stdout.count("done"), met[1] if met else ""


@dataclass(frozen=True)
class Pair:
    """Writes both files of a table for a library."""

    table: TuningTable
    trees: mpich.GenericTrees
    place: Path

    def settings(self, mpir: int | None = None, device: int | None = None) -> dict[str, str]:
        """Return settings for files with the rules poisoned that begin at so many bytes."""
        assert self.trees.device is not None
        file = self.place / "m.json"
        below, handed_on = layer.device_file_path(file), layer.rule_to_leaf(self.trees.device)
        for path, own, rule_to_leaf, fault, lo in (
            (file, self.trees.mpir, emitter.leaf_for_rule, emitter.FAULT_LEAF, mpir),
            (below, self.trees.device, handed_on, layer.FAULT_LEAF, device),
        ):
            leaf_of = partial(self._leaf, rule_to_leaf, fault, lo)
            path.write_text(json.dumps(merge_into_generic(self.table, own, leaf_of)))
        return activation(file, layer.device_file_path(file))

    @staticmethod
    def _leaf(leaf_of: RuleToLeaf, poison: Leaf, lo: int | None, rule: Rule) -> Leaf | None:
        return poison if rule.start_bytes == lo else leaf_of(rule)


@pytest.mark.representative("-allreduce")
@pytest.mark.parametrize("collective", [BCAST, ALLREDUCE])
def test_calls_with_rules_reach_them_and_all_others_stay_with_the_device_layer(
    collective: Collective,
    mpich_of_each_version: Launcher,
    trees: mpich.GenericTrees,
    tmp_path: Path,
) -> None:
    pair = Pair(table_for(mpich_of_each_version), trees, tmp_path)
    calls = [f"{collective}:{nbytes}" for nbytes in (4096, 2 * RULED, 2 * LARGE)]
    expected = {
        (None, None): (3, ""),
        (KEPT, None): (3, ""),  # what has no rule does not reach the MPIR layer
        (LARGE, None): (3, ""),
        (RULED, None): (1, "mpi/coll"),
        (None, KEPT): (0, "mpid/ch4/src/ch4_coll.h"),
        (None, LARGE): (2, "mpid/ch4/src/ch4_coll.h"),
    }
    for (mpir, device), (done, source) in expected.items():
        met = ended(mpich_of_each_version, pair.settings(mpir, device), calls)
        assert (met[0], met[1].startswith(source)) == (done, True), f"{mpir}, {device}: {met}"
        assert bool(met[1]) == bool(source)


@pytest.mark.extended
def test_every_rule_is_proved_under_both_files(
    mpich_of_each_version: Launcher, trees: mpich.GenericTrees, tmp_path: Path
) -> None:
    table = table_for(mpich_of_each_version)
    Pair(table, trees, tmp_path).settings()
    file = tmp_path / "m.json"
    validations = validate(
        table,
        file,
        trees,
        mpich_of_each_version,
        tmp_path,
        device_file=layer.device_file_path(file),
    )
    assert len(validations) == len(table.rules)
    assert [str(validation) for validation in validations if not validation.confirmed] == []


def test_rules_for_small_calls_are_proved_where_shared_memory_is_set_up_by_such(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    """A broadcast that is left to the device layer has the library make small ones of its own."""
    trees = mpich.read_generic_trees(mpich_launcher.libmpi())
    table = table_of(
        {(BCAST, 2): [(0, AlgorithmChoice("binomial")), (KEPT, AlgorithmChoice())]},
        (16, 4096),
        mpich_launcher.version(),
    )
    Pair(table, trees, tmp_path).settings()
    file, ranks = tmp_path / "m.json", Watched(mpich_launcher)
    validations = validate(
        table, file, trees, ranks, tmp_path, device_file=layer.device_file_path(file)
    )
    assert [validation.reason for validation in validations] == ["", ""]
    # without data, under the files, twice and for its own size alone, the default
    assert len(ranks.launches) == 6


@pytest.mark.extended
def test_a_device_layer_that_does_not_get_its_file_is_noticed(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    """It answers what has a rule itself then, and the default without the file."""
    trees = mpich.read_generic_trees(mpich_launcher.libmpi())
    table = table_for(mpich_launcher)
    Pair(table, trees, tmp_path).settings()
    file = tmp_path / "m.json"
    validations = validate(
        table,
        file,
        trees,
        Watched(mpich_launcher, deaf=True),
        tmp_path,
        device_file=layer.device_file_path(file),
    )
    assert not any(validation.confirmed for validation in validations)


SHAPES = {  # nodes, ppn -> how many ranks there are, and what divides them
    (1, 2): (2, {}),
    (2, 1): (2, {"MPIR_CVAR_NUM_CLIQUES": "2"}),
    (2, 2): (4, {"MPIR_CVAR_NUM_CLIQUES": "2"}),
}


def poisoned(node: mpich.Tree, leaf: Leaf | None) -> mpich.Tree:
    """Return a tree with the poison in place of this leaf, None for every leaf."""
    return {
        (
            emitter.FAULT_LEAF.key
            if key.startswith("algorithm=") and leaf in (None, Leaf.from_key(key, below))
            else key
        ): {} if key.startswith("algorithm=") else poisoned(below, leaf)
        for key, below in node.items()
    }


@pytest.mark.representative("bcast-2-2-single", "allreduce-1-2-multiple")
@pytest.mark.parametrize("level", [THREAD_SINGLE, MULTIPLE])
@pytest.mark.parametrize(("nodes", "ppn"), SHAPES)
@pytest.mark.parametrize("collective", [BCAST, ALLREDUCE])
def test_what_is_known_of_the_default_is_what_the_mpir_layer_runs(
    collective: Collective,
    nodes: int,
    ppn: int,
    level: str,
    mpich_launcher: Launcher,
    tmp_path: Path,
) -> None:
    """Cliques of one host are nodes for MPICH. With several threads nothing is in shared memory."""
    trees = mpich.read_generic_trees(mpich_launcher.libmpi())
    (found,) = find_default_algorithms(trees, [(collective, nodes, ppn, BLOCK)], LARGE, level)
    choice, name = found.choice_at(RULED), f"collective={collective}"
    own = trees.mpir[name]["comm_type=intra"]
    leaf = None if choice is None else emitter.leaf_for_choice(collective, choice)
    ranks, divided = SHAPES[nodes, ppn]
    large = {f"comm_size<={ranks - 1}": own, "comm_size=any": poisoned(own, leaf)}
    tree = {"avg_msg_size<=1023": own, "avg_msg_size=any": large}
    file = tmp_path / "m.json"
    file.write_text(json.dumps({**trees.mpir, name: {"comm_type=intra": tree}}))
    settings = {mpich.MPIR.variable: str(file), **divided}
    done, _ = ended(mpich_launcher, settings, [f"{collective}:{RULED}"], level, ranks)
    if choice is not None:
        assert done == 0
    elif level == THREAD_SINGLE:
        assert done == 1
    assert (choice is None) == (
        (nodes, ppn) == (2, 2) or (ppn == 2 and (level == THREAD_SINGLE or collective is BCAST))
    )


@pytest.mark.parametrize("nbytes", [1024, LARGE])
def test_a_reduce_scatter_runs_what_the_rules_say(
    nbytes: int, mpich_launcher: Launcher, tmp_path: Path
) -> None:
    """The program ends with the poison in that leaf, and goes on with it in the other one."""
    trees = mpich.read_generic_trees(mpich_launcher.libmpi())
    call = Collective.REDUCE_SCATTER, 1, 2, BLOCK
    (found,) = find_default_algorithms(trees, [call], LARGE)
    name, file = f"collective={call[0]}", tmp_path / "m.json"
    for choice in found.choices:
        leaf = Leaf(f"MPIR_Reduce_scatter_intra_{choice}")
        file.write_text(json.dumps({**trees.mpir, name: poisoned(trees.mpir[name], leaf)}))
        run = mpich_launcher.run(
            2,
            [str(PROGRAM.with_name("reduce_scatter_program.py")), str(nbytes)],
            settings={mpich.MPIR.variable: str(file)},
            timeout=patience(),
            check=False,
            environment={"PYTHONPATH": str(PROGRAM.parents[2])},
        )
        dies = choice == found.choice_at(nbytes)
        assert bool(run.returncode) == dies
        assert bool(FAULT_MESSAGE.search(run.stderr)) == dies


def test_a_call_that_the_dispatcher_forces_leaves_the_next_one_to_the_device_layer(
    mpich_launcher: Launcher, tmp_path: Path
) -> None:
    """Where a call reaches the MPIR layer without being forced, the program ends."""
    generic = mpich.read_generic_tree(mpich_launcher.libmpi())
    table = table_of({(ALLREDUCE, 2): [(0, AlgorithmChoice()), (KEPT, AlgorithmChoice())]})
    file = tmp_path / "m.json"
    tree = merge_into_generic(
        table, generic, lambda rule: emitter.FAULT_LEAF if rule.start_bytes else None
    )
    file.write_text(json.dumps(tree))
    words = ["-m", "mpi4py", "-rc", f"thread_level={THREAD_SINGLE}"]
    run = mpich_launcher.run(
        2,
        [*words, str(PROGRAM.with_name("flag_program.py"))],
        settings={mpich.MPIR.variable: str(file)},
        timeout=patience(),
        check=False,
        environment={"PYTHONPATH": str(PROGRAM.parents[2])},
    )
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("{")]
    said = json.loads(line)
    on, off = 1, 0
    assert said["before"] == said["after"] == [on, 0]
    assert said["warm"] == said["left"] == [[on, 0]]
    assert said["ruled"] == [[off, 3]]
    assert run.returncode != 0
    assert FAULT_MESSAGE.search(run.stderr)
