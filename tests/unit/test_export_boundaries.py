"""Every format: a written file, read as its runtime reads it, says what the table says, at every
bound of every rule and one byte to both sides.

What the table says is looked up here, rule by rule; no part of an exporter's own comparison is
used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ladders import CLUSTER
from tests.support.trees import BELOW, DENSE, GENERIC
from tuner import mpi_libraries
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmConfig, Evidence, Rule, RuleKey, TuningTable
from tuner.formats import intelmpi, mpich, mvapich2, nccl, openmpi, ucc
from tuner.formats.openmpi import json_rules
from tuner.formats.registry import FORMATS, ExportOptions
from tuner.mpi_libraries.intelmpi import MAX_PRESETS, PER_RANK_COLLECTIVES, config_of
from tuner.mpi_libraries.mvapich2 import ALGORITHMS as MVAPICH2
from tuner.mpi_libraries.nccl.names import algo_protos_of
from tuner.mpi_libraries.nccl.names import config_of as nccl_choice
from tuner.mpi_libraries.ucc import ALGORITHMS as UCC
from tuner.mpi_libraries.ucc import UNSPLITTABLE_COLLECTIVES

ALLREDUCE, BCAST, REDUCE = Collective.ALLREDUCE, Collective.BCAST, Collective.REDUCE
ALLGATHER, REDUCE_SCATTER = Collective.ALLGATHER, Collective.REDUCE_SCATTER
DEFAULT = AlgorithmConfig()
FAR = 1 << 31
Choices = Mapping[Collective, Sequence[AlgorithmConfig]]
Says = Callable[[RuleKey, int], object]


@dataclass(frozen=True)
class Reader:
    """One format, as one version of its runtime reads it.

    choices     what a rule for any operator may say
    operators   of the calls that its files are for
    further     what a rule for commutative operators may say besides
    shapes      (nodes, ppn) that it can tell apart
    wish        what is asked for
    says        text -> what the runtime does with a call under a key
    wanted      what it has to do, by the rule that the table has for it, if any
    """

    name: str
    library: str
    choices: Choices
    shapes: Sequence[tuple[int, int]]
    wish: ExportOptions
    says: Callable[[str], Says]
    wanted: Callable[[Rule | None, RuleKey, int], object]
    operators: Sequence[str] = ("any",)
    further: Choices = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.library}"


FLAT = tuple((1, p) for p in (1, 2, 3, 4, 5, 8, 16, 33))
ENDS = ((1, 2), (1, 4), (1, 5), (2, 1), (4, 1), (8, 1), (9, 1))  # one node, or one rank on each
SPREAD = ((1, 4), (2, 1), (2, 2), (2, 8), (3, 1), (4, 4), (5, 1))
SEVERAL = ((2, 1), (3, 1), (2, 2), (5, 1), (2, 8), (17, 1))


def own(rule: Rule | None, _key: RuleKey, _nbytes: int) -> AlgorithmConfig:
    """The rule's choice as it is."""
    return DEFAULT if rule is None else rule.choice


# Open MPI

OPENMPI = {
    c: [
        DEFAULT,
        *(
            x
            for n in (8, 1 << 20)
            for x in mpi_libraries.openmpi.candidates(c, 16, n)
            if mpi_libraries.openmpi.preserves_operand_order(c, x)
            and mpi_libraries.openmpi.is_expressible(c, x)
        ),
    ]
    for c in (ALLGATHER, ALLREDUCE, BCAST, REDUCE)
}
SIX = {
    c: [x for x in own if x.algorithm not in json_rules.REDEFINED_ALGORITHMS.get(c, ())]
    for c, own in OPENMPI.items()
}


def openmpi_wanted(rule: Rule | None, key: RuleKey, nbytes: int) -> AlgorithmConfig:
    """An allgather of no bytes is left alone: in place it counts none, whatever its size."""
    blind = key.collective is ALLGATHER and nbytes == 0
    if rule is None or rule.choice.is_default or blind:
        return DEFAULT
    return mpi_libraries.openmpi.canonical_config(key.collective, rule.choice)


def classic(text: str) -> Says:
    rules = openmpi.parse(text)
    return lambda key, nbytes: openmpi.decide(rules, key.collective, key.p, nbytes)


def from_six(text: str) -> Says:
    rules = json_rules.parse(text)
    return lambda key, n: json_rules.decide(rules, key.collective, key.nodes, key.ppn, n)


# MPICH, MVAPICH

MPICH = {
    c: [
        x
        for x in mpi_libraries.mpich.candidates(c, 16, 1 << 20)
        if mpi_libraries.mpich.preserves_operand_order(c, x)
    ]
    for c in (ALLREDUCE, BCAST)
}
MPICH_COMMUTATIVE = {
    ALLREDUCE: [
        x
        for x in mpi_libraries.mpich.candidates(ALLREDUCE, 16, 1 << 20)
        if not mpi_libraries.mpich.preserves_operand_order(ALLREDUCE, x)
    ]
}


def csel_call(key: RuleKey, nbytes: int) -> mpich.CselCall:
    return mpich.CselCall(key.p, nbytes, commutative=key.operators == "commutative", ppn=key.ppn)


def csel(library: str, layer: mpich.Layer = mpich.MPIR) -> Callable[[str], Says]:
    def says(text: str) -> Says:
        tree = mpich.parse(text, library, layer)
        return lambda key, nbytes: mpich.decide(tree, key.collective, csel_call(key, nbytes))

    return says


def csel_wanted(
    generic: mpich.Tree, leaf_of: Callable[[Rule], mpich.Leaf | None] = mpich.leaf_for_rule
) -> Callable[[Rule | None, RuleKey, int], mpich.Leaf]:
    def wanted(rule: Rule | None, key: RuleKey, nbytes: int) -> mpich.Leaf:
        few = nbytes // 4 < 1 << (key.p.bit_length() - 1)
        if (
            rule is None
            or rule.choice.is_default
            or (few and rule.choice.algorithm == "rabenseifner")
        ):
            return mpich.decide(generic, key.collective, csel_call(key, nbytes))
        leaf = leaf_of(rule)
        assert leaf is not None
        return leaf

    return wanted


# NCCL, UCC

NCCL = {
    c: [nccl_choice(way, channels) for way in algo_protos_of(c) for channels in (0, 1, 64)]
    for c in (ALLGATHER, ALLREDUCE, BCAST, REDUCE, REDUCE_SCATTER)
}
STAND_IN = AlgorithmConfig("ring_simple")
UCC_CHOICES = {
    c: [DEFAULT, *map(AlgorithmConfig, UCC[c])] for c in UCC if c not in UNSPLITTABLE_COLLECTIVES
}


def plugin(family: str) -> Callable[[str], Says]:
    def says(text: str) -> Says:
        rows = nccl.parse(text, family)

        def decided(key: RuleKey, nbytes: int) -> AlgorithmConfig | None:
            return nccl.decide(rows, nccl.PluginCall(key.collective, key.nodes, key.p, nbytes))

        return decided

    return says


def plugin_wanted(family: str) -> Callable[[Rule | None, RuleKey, int], AlgorithmConfig | None]:
    left = STAND_IN if family == "nccl" else None
    return lambda rule, _key, _nbytes: (
        left if rule is None or rule.choice.is_default else rule.choice
    )


def sections(text: str) -> Says:
    conf = ucc.parse(text)

    def decided(key: RuleKey, nbytes: int) -> AlgorithmConfig:
        return ucc.decide(conf, key.collective, ucc.Team(key.nodes, key.ppn), key.memory, nbytes)

    return decided


# variables


def variables(dialect: Any) -> Callable[[str], Says]:
    def says(text: str) -> Says:
        found = dialect.parse(text)
        return lambda key, nbytes: dialect.decide(found, key.collective, key.p, nbytes)

    return says


PRESET = {c: [config_of(n) for n in range(most + 1)] for c, most in MAX_PRESETS.items()}
NUMBERED = {c: [AlgorithmConfig(name) for name in known] for c, known in MVAPICH2.items()}
REORDERING = {
    ALLREDUCE: [
        x
        for x in mpi_libraries.openmpi.candidates(ALLREDUCE, 16, 1 << 20)
        if not mpi_libraries.openmpi.preserves_operand_order(ALLREDUCE, x)
    ]
}


def han(text: str) -> Says:
    rules = openmpi.han.parse(text)
    return lambda key, nbytes: openmpi.han.decide(rules, key.collective, key.p, nbytes)


def han_wanted(rule: Rule | None, key: RuleKey, nbytes: int) -> str:
    left = openmpi_wanted(rule, key, nbytes).is_default
    return openmpi.han.HAN if left else openmpi.han.TUNED


def grown_into(tree: mpich.Tree) -> ExportOptions:
    return ExportOptions(base_rules=lambda _library, _layer: tree)


ALL = ExportOptions(commutative_only=True)
BOTH = ("any", "commutative")
READERS = [
    *(
        Reader("openmpi", f"openmpi {version}", OPENMPI, FLAT, *rest)
        for version in ("4.1.8", "5.0.11")
        for rest in (
            (ExportOptions(), classic, openmpi_wanted),
            (ALL, classic, openmpi_wanted, ("commutative",), REORDERING),
        )
    ),
    Reader("openmpi-han", "openmpi 5.0.11", OPENMPI, SEVERAL, ExportOptions(), han, han_wanted),
    *(
        Reader("openmpi-json", "openmpi 6.0.0", SIX, ENDS, *rest)
        for rest in (
            (ExportOptions(), from_six, openmpi_wanted),
            (ALL, from_six, openmpi_wanted, ("commutative",), REORDERING),
        )
    ),
    *(
        Reader(
            name,
            library,
            MPICH,
            FLAT,
            grown_into(tree),
            csel(library),
            csel_wanted(tree),
            BOTH,
            MPICH_COMMUTATIVE,
        )
        for name, library, tree in (
            ("mpich", "mpich 4.1.2", GENERIC),
            ("mpich", "mpich 5.0.2", GENERIC),
            ("mvapich", "mvapich 4.0", DENSE),
        )
    ),
    Reader(
        "mpich-device",
        "mpich 5.0.2",
        MPICH,
        [(1, 2), (1, 6), (2, 4), (9, 1)],
        grown_into(BELOW),
        csel("mpich 5.0.2", mpich.DEVICE),
        csel_wanted(BELOW, mpich.device.leaf_for_rule),
        BOTH,
        MPICH_COMMUTATIVE,
    ),
    *(
        Reader(
            "nccl",
            f"{family} 2.27",
            NCCL,
            SPREAD,
            ExportOptions(fallback_algorithm=str(STAND_IN)),
            plugin(family),
            plugin_wanted(family),
        )
        for family in ("nccl", "rccl")
    ),
    Reader("ucc", "ucc 1.8.0", UCC_CHOICES, SPREAD, ExportOptions(), sections, own),
    Reader(
        "intelmpi",
        "intelmpi 2021.18.1",
        PRESET,
        [(1, 6)],
        ExportOptions(),
        variables(intelmpi.DIALECT),
        own,
        ("any",),
    ),
    Reader(
        "mvapich2",
        "mvapich2 2.3.7",
        NUMBERED,
        [(1, 6)],
        ALL,
        variables(mvapich2.DIALECT),
        own,
        ("commutative",),
    ),
]
BOUNDS = st.one_of(
    st.integers(1, 64), st.integers(1, 1 << 24), st.integers(0, 24).map(lambda bits: 1 << bits)
)


@st.composite
def tables(draw: st.DrawFn, reader: Reader) -> TuningTable:
    """Ladders of some collectives on some shapes, here and there for commutative operators, too, or
    alone.
    """
    rules: list[Rule] = []
    memory = "cuda" if reader.name == "nccl" else "host"
    places = st.tuples(st.sampled_from(sorted(reader.choices)), st.sampled_from(reader.shapes))
    for collective, shape in draw(st.sets(places, min_size=1, max_size=4)):
        key = RuleKey(collective, *shape, memory)
        only = "commutative" in reader.operators and collective.is_reduction and draw(st.booleans())
        rules += [] if only else draw(ladders(key, reader.choices[collective]))
        further = [*reader.choices[collective], *reader.further.get(collective, ())]
        if only or (
            "commutative" in reader.operators and collective.is_reduction and draw(st.booleans())
        ):
            rules += draw(ladders(replace(key, operators="commutative"), further))
    return TuningTable(CLUSTER, reader.library, tuple(rules))


@st.composite
def ladders(draw: st.DrawFn, key: RuleKey, choices: Sequence[AlgorithmConfig]) -> list[Rule]:
    starts = sorted(draw(st.sets(BOUNDS, max_size=6)))
    said = [draw(st.sampled_from(choices)) for _ in range(len(starts) + 1)]
    bounds: list[float] = [0, *starts, math.inf]
    return [
        Rule(key, int(lo), hi, choice, Evidence("measured"))
        for (lo, hi), choice in zip(pairwise(bounds), said, strict=True)
    ]


def calls(table: TuningTable, reader: Reader) -> Iterator[tuple[RuleKey, int]]:
    """Of every shape that a file could tell apart and every kind of operator, beside every bound
    that any ladder of the collective has."""
    memory = table.keys[0].memory
    for collective in {key.collective for key in table.keys}:
        bounds = {0, FAR} | {r.start_bytes for r in table.rules if r.key.collective is collective}
        whole = reader.name in ("intelmpi", "openmpi-han") and collective in PER_RANK_COLLECTIVES
        for shape in reader.shapes:
            for operators in reader.operators:
                key = RuleKey(collective, *shape, memory, operators)
                share = key.p if whole else 1  # such calls have as many bytes for each rank
                sizes = {n // share * share + k * share for n in bounds for k in (-1, 0, 1)}
                yield from ((key, n) for n in sorted(sizes) if n >= 0)


def rule_of(table: TuningTable, key: RuleKey, nbytes: int) -> Rule | None:
    """The first that holds, of those for the operator or of those for any."""
    for wanted in (key, replace(key, operators="any")):
        for rule in table.rules:
            if rule.key == wanted and rule.start_bytes <= nbytes < rule.stop_bytes:
                return rule
    return None


@pytest.mark.parametrize("reader", READERS, ids=str)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_file_says_what_its_table_says(reader: Reader, data: st.DataObject) -> None:
    table = data.draw(tables(reader))
    text, lost = FORMATS[reader.name].emit(table, reader.wish)
    assert not lost
    says = reader.says(text)
    for key, nbytes in calls(table, reader):
        wanted = reader.wanted(rule_of(table, key, nbytes), key, nbytes)
        assert says(key, nbytes) == wanted, f"{key}, {nbytes} bytes"


def test_every_format_is_read_back() -> None:
    assert {reader.name for reader in READERS} == set(FORMATS)
