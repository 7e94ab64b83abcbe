"""The choices of an MPI library itself as the table of a study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from tuner.base.errors import InputError, ProbeError
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, RuleKey
from tuner.topology import CUDA, HOST
from tuner.validation import validate_openmpi
from tuner.validation.openmpi_fixed_decisions import FixedDecision
from tuner.whatif import library_default
from tuner.whatif.library_default import default_table, title_of_default
from tuner.whatif.live_study import LiveStudy

BCAST, ALLREDUCE = Collective.BCAST, Collective.ALLREDUCE
RING = AlgorithmChoice("ring")
RABENSEIFNER = AlgorithmChoice("rabenseifner")
DECISIONS = (
    FixedDecision(ALLREDUCE, 1, (4,), (AlgorithmChoice("linear"),)),
    FixedDecision(ALLREDUCE, 8, (4, 1024), (RABENSEIFNER, RING)),
    FixedDecision(BCAST, 1, (4,), (None,)),
)
SIZES = (64, 512, 1024, 1 << 20)


OPENMPI = SimpleNamespace(installation=SimpleNamespace(library="openmpi 5.0.11"))


@pytest.fixture
def openmpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_default, "_launcher", lambda _library: OPENMPI)
    monkeypatch.setattr(validate_openmpi, "known_decisions", lambda _launcher: DECISIONS)


def chosen(key: RuleKey, sizes: Sequence[int] = SIZES) -> list[tuple[int, float, str]]:
    rules = default_table("openmpi", [key], sizes).rules
    return [(one.start_bytes, one.stop_bytes, str(one.choice)) for one in rules]


@pytest.mark.usefixtures("openmpi")
def test_the_decision_is_that_for_the_number_of_ranks_and_the_size() -> None:
    assert chosen(RuleKey(ALLREDUCE, 4, 2)) == [(0, 1024, "rabenseifner"), (1024, math.inf, "ring")]
    assert chosen(RuleKey(ALLREDUCE, 7, 1)) == [(0, math.inf, "linear")]


@pytest.mark.usefixtures("openmpi")
def test_what_an_algorithm_hands_on_is_told() -> None:
    """A ring over more ranks than elements is recursive doubling in Open MPI."""
    assert chosen(RuleKey(ALLREDUCE, 512, 1), (1024, 4096)) == [
        (0, 4096, "recursive_doubling"),
        (4096, math.inf, "ring"),
    ]


@pytest.mark.usefixtures("openmpi")
def test_allreduces_of_device_buffers_are_staged() -> None:
    rules = default_table("openmpi", [RuleKey(ALLREDUCE, 8, 1, CUDA)], SIZES).rules
    staged = AlgorithmChoice("rabenseifner_staged", {"copies": 2}, SCHEDULE)
    assert rules[0].choice == staged
    assert all("_staged" in one.choice.algorithm for one in rules)


@pytest.mark.usefixtures("openmpi")
def test_what_is_not_known_is_left_to_the_library() -> None:
    assert chosen(RuleKey(BCAST, 8, 1)) == [(0, math.inf, "default")]
    assert chosen(RuleKey(Collective.REDUCE, 8, 1)) == [(0, math.inf, "default")]


def test_unknown_libraries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="default:nccl: known are default:openmpi and"):
        default_table("nccl", [], SIZES)

    def missing(_library: str) -> SimpleNamespace:
        raise ProbeError("there is no MPICH here")

    monkeypatch.setattr(library_default, "_launcher", missing)
    with pytest.raises(InputError, match="default:mpich: there is no MPICH here"):
        default_table("mpich", [], SIZES)


@pytest.mark.usefixtures("openmpi")
def test_a_study_prices_the_choices_of_the_library() -> None:
    live = LiveStudy.from_record(
        {
            "name": "default",
            "topology": {"name": "flat", "nodes": 8, "latency": "2us", "bandwidth": "10GB/s"},
            "vary": {"nodes": [8], "memory": [HOST]},
            "collectives": ["allreduce"],
            "sizes": list(SIZES),
            "algorithms": ["bine"],
            "table": "default:openmpi",
        }
    )
    outline = live.outline()
    assert outline["library"] == "Open MPI 5.0.11 (coll/tuned)"
    assert outline["library_choices"] == ["rabenseifner", "rabenseifner", "ring", "ring"]
    names = live.names(range(len(live.plan.tasks)))
    assert set(outline["library_choices"]) < set(names)
    assert live.study.table is not None
    assert title_of_default(live.study.table) == outline["library"]
