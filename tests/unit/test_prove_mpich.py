"""Which calls a proof of MPICH's file makes, and what it concludes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.support.ladders import table_of
from tests.support.trees import GENERIC
from tuner.collective import Collective
from tuner.export import mpich
from tuner.export.mpich.emitter import POISON
from tuner.export.mpich.proof import prove
from tuner.runtime.launch import CompletedRun
from tuner.table import Choice, TuningTable

BCAST = Collective.BCAST
FILE = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"


@dataclass
class Ranks:
    """Ranks that read the file as MPICH does and die where it says so; `launches` of them."""

    library: str = "mpich"
    launches: list[int] = field(default_factory=list)

    def run(
        self, ranks: int, arguments: Sequence[str], *, settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], float | None] | None = None, timeout: float | None = None,
        check: bool = True,
    ) -> CompletedRun:  # fmt: skip
        tree = json.loads(Path((settings or {})[FILE]).read_text())
        self.launches.append(ranks)
        for number, call in enumerate(json.loads(Path(arguments[-1]).read_text())):
            made = mpich.Call(call["nodes"] * call["ppn"], call["nbytes"], ppn=call["ppn"])
            if mpich.decide(tree, Collective(call["collective"]), made) == POISON:
                break
            said = {"call": number, "error": 0, "executed": [], "entered": []}
            if on_line:
                on_line(json.dumps(said))
        return CompletedRun(0, "", "")


def test_shapes_that_share_a_leaf_are_tried_once(tmp_path: Path) -> None:
    """Each launch is poisoned where a rule of one shape leads, and so do those of the others."""
    made = table_of({(BCAST, 4): [(0, Choice()), (4096, Choice("binomial"))]}, (64, 65536))
    rules = tuple(
        replace(rule, key=replace(rule.key, nodes=nodes, ppn=4 // nodes))
        for nodes in (2, 4) for rule in made.rules
    )  # fmt: skip
    table, ranks = TuningTable(made.cluster, "mpich 5.0.2", rules), Ranks()
    file = tmp_path / "m.json"
    file.write_text(mpich.emit(table, GENERIC))
    proofs = prove(table, file, GENERIC, ranks, tmp_path)
    assert {proof.rule for proof in proofs} == set(table.rules)
    assert [proof.reason for proof in proofs] == [""] * 4
    assert len(ranks.launches) == 2
