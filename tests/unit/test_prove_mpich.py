"""Which calls a proof of MPICH's file makes, and what it concludes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.trees import GENERIC
from tuner.collective import Collective
from tuner.errors import ProbeError
from tuner.export import mpich
from tuner.export.mpich.emitter import POISON
from tuner.export.mpich.proof import prove
from tuner.export.prove import RuleProof
from tuner.runtime.launch import CompletedRun
from tuner.table import Choice, TuningTable

BCAST = Collective.BCAST
FILE = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"


@dataclass
class Ranks:
    """Ranks that read the file as MPICH does and die where it says so; `launches` of them.

    lasting     launches until their host is lost
    lost        a launch, counted from 1, that ends before its first answer
    """

    library: str = "mpich"
    launches: list[int] = field(default_factory=list)
    lasting: int = 1_000_000
    lost: int = 0

    def run(
        self, ranks: int, arguments: Sequence[str], *, settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], float | None] | None = None, timeout: float | None = None,
        patience: float | None = None, check: bool = True,
    ) -> CompletedRun:  # fmt: skip
        tree = json.loads(Path((settings or {})[FILE]).read_text())
        self.launches.append(ranks)
        if len(self.launches) > self.lasting:
            if check:
                raise ProbeError("host node1 was lost")
            return CompletedRun(255, "", "")
        if len(self.launches) == self.lost:
            return CompletedRun(255, "", "")
        for number, call in enumerate(json.loads(Path(arguments[-1]).read_text())):
            made = mpich.Call(call["nodes"] * call["ppn"], call["nbytes"], ppn=call["ppn"])
            if mpich.decide(tree, Collective(call["collective"]), made) == POISON:
                break
            said = {"call": number, "error": 0, "executed": [], "entered": []}
            if on_line:
                on_line(json.dumps(said))
        return CompletedRun(0, "", "")


def proved(table: TuningTable, ranks: Ranks, place: Path) -> list[RuleProof]:
    file = place / "m.json"
    file.write_text(mpich.emit(table, GENERIC))
    return prove(table, file, GENERIC, ranks, place)


def test_shapes_that_share_a_leaf_are_tried_once(tmp_path: Path) -> None:
    """Each launch is poisoned where a rule of one shape leads, and so do those of the others."""
    made = table_of({(BCAST, 4): [(0, Choice()), (4096, Choice("binomial"))]}, (64, 65536))
    rules = tuple(
        replace(rule, key=replace(rule.key, nodes=nodes, ppn=4 // nodes))
        for nodes in (2, 4) for rule in made.rules
    )  # fmt: skip
    table, ranks = TuningTable(made.cluster, "mpich 5.0.2", rules), Ranks()
    proofs = proved(table, ranks, tmp_path)
    assert {proof.rule for proof in proofs} == set(table.rules)
    assert [proof.reason for proof in proofs] == [""] * 4
    assert len(ranks.launches) == 2


LADDER = [(0, Choice()), (1024, Choice("binomial")), (4096, Choice()), (9000, Choice("binomial"))]


def test_ranks_that_answer_no_more_end_the_proof_and_keep_what_was_proved(tmp_path: Path) -> None:
    """A launch that died without a word looked like the work of another rule's poison."""
    table, ranks = table_of({(BCAST, 4): LADDER}, (64, 65536)), Ranks(lasting=2)
    proofs = proved(table, ranks, tmp_path)
    assert [proof.confirmed for proof in proofs] == [True, True, False, False]
    assert [proof.reason for proof in proofs[2:]] == ["not tried: host node1 was lost"] * 2
    assert [proof.sizes for proof in proofs[2:]] == [(), ()]
    assert len(ranks.launches) == 2 + 4


def test_ranks_that_never_answer_are_said_so(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="host node1 was lost"):
        proved(table_of({(BCAST, 4): LADDER}, (64, 65536)), Ranks(lasting=0), tmp_path)


def test_a_launch_that_was_lost_is_no_evidence(tmp_path: Path) -> None:
    """Nor does it confirm a rule: one that is called when communicators are made looks the same."""
    table, ranks = table_of({(BCAST, 4): LADDER}, (64, 65536)), Ranks(lost=2)
    proofs = proved(table, ranks, tmp_path)
    assert [proof.confirmed for proof in proofs] == [True, False, True, True]
    assert proofs[1].sizes == ()
    assert proofs[1].reason == "two launches under the same file ended differently"
