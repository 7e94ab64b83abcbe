"""The contract of all formats, tested on each as its library reads it.

What the table says is looked up here, rule by rule; no part of an exporter's own comparison is
used for it. A new format needs an entry in `CASES`. What only one format does is in its own file.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ladders import CLUSTER
from tests.support.numbers import MISREAD
from tests.support.properties import examples
from tests.support.trees import BELOW, DENSE, GENERIC
from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable
from tuner.formats import intelmpi, mpich, mvapich2, nccl, openmpi, ucc
from tuner.formats.file_rules import AskedCall, deciding_rule, unreached
from tuner.formats.openmpi import json_rules
from tuner.formats.registry import FORMATS, ExportOptions, Format, detect_format, recognise_format
from tuner.formats.rules_by_ranks import describe_rule
from tuner.mpi_libraries.intelmpi import MAX_PRESETS, PER_RANK_COLLECTIVES, choice_of
from tuner.mpi_libraries.mvapich2 import ALGORITHMS as MVAPICH2
from tuner.mpi_libraries.nccl.names import algo_protos_of
from tuner.mpi_libraries.nccl.names import choice_of as nccl_choice
from tuner.mpi_libraries.openmpi_rule_numbers import canonical_choice
from tuner.mpi_libraries.ucc import ALGORITHMS as UCC
from tuner.mpi_libraries.ucc import UNSPLITTABLE_COLLECTIVES

ALLREDUCE, BCAST, REDUCE = Collective.ALLREDUCE, Collective.BCAST, Collective.REDUCE
ALLGATHER, ALLTOALL = Collective.ALLGATHER, Collective.ALLTOALL
REDUCE_SCATTER = Collective.REDUCE_SCATTER
DEFAULT = AlgorithmChoice()
FAR = (1 << 31, 1 << 40)  # beyond every bound of a rule
Choices = Mapping[Collective, Sequence[AlgorithmChoice]]
Decide = Callable[[RuleKey, int], object]


@dataclass(frozen=True)
class Case:
    """One format, as one version of its library reads it.

    choices             algorithm choices that a rule for any operator may have
    shapes              (nodes, ppn) that the format can tell apart
    options             options to export with
    read                returns what the library does with calls, given the text of a file
    expected            returns what it must do, given the rule of the table or None
    operators           kinds of operators that the file is for
    reordering          further choices, for rules for commutative operators
    memories            kinds of memory that the format can tell apart
    """

    name: str
    library: str
    choices: Choices
    shapes: Sequence[tuple[int, int]]
    options: ExportOptions
    read: Callable[[str], Decide]
    expected: Callable[[Rule | None, RuleKey, int], object]
    operators: Sequence[str] = ("any",)
    reordering: Choices = field(default_factory=dict)
    memories: Sequence[str] = ("host",)

    @property
    def form(self) -> Format:
        return FORMATS[self.name]

    def emit(self, table: TuningTable) -> str:
        """Return the text of a file from which nothing is left out."""
        text, lost = self.form.emit(table, self.options)
        assert not lost
        return text

    def check(self, table: TuningTable, text: str) -> list[str]:
        return self.form.check(table, text, self.options)

    def __str__(self) -> str:
        return f"{self.name} {self.library}"


FLAT = tuple((1, p) for p in (1, 2, 3, 4, 5, 8, 16, 33))
ENDS = ((1, 2), (1, 4), (1, 5), (2, 1), (4, 1), (8, 1), (9, 1))  # one node, or one rank on each
SPREAD = ((1, 4), (2, 1), (2, 2), (2, 8), (3, 1), (4, 4), (5, 1))
SEVERAL = ((2, 1), (3, 1), (2, 2), (5, 1), (2, 8), (17, 1))


def own(rule: Rule | None, _key: RuleKey, _nbytes: int) -> AlgorithmChoice:
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
    for c in (ALLGATHER, ALLREDUCE, ALLTOALL, BCAST, REDUCE)
}
OF_HAN = {c: own for c, own in OPENMPI.items() if c is not ALLTOALL}
SIX = {
    c: [x for x in own if x.algorithm not in json_rules.REDEFINED_ALGORITHMS.get(c, ())]
    for c, own in OPENMPI.items()
}


def openmpi_expected(rule: Rule | None, key: RuleKey, nbytes: int) -> AlgorithmChoice:
    """A call of no bytes is left alone where it has blocks, or where a segment is named.

    An allgather or all-to-all in place counts no bytes, whatever its size, and a datatype of size 0
    may end the program in an algorithm with a segment.
    """
    if rule is None or rule.choice.is_default:
        return DEFAULT
    blind = key.collective in (ALLGATHER, ALLTOALL)
    if nbytes == 0 and (blind or "segment" in rule.choice.params):
        return DEFAULT
    return canonical_choice(key.collective, rule.choice)


def classic(text: str) -> Decide:
    rules = openmpi.parse(text)
    return lambda key, nbytes: openmpi.decide(rules, key.collective, key.p, nbytes)


def from_six(text: str) -> Decide:
    rules = json_rules.parse(text)
    return lambda key, n: json_rules.decide(rules, key.collective, key.nodes, key.ppn, n)


# MPICH, MVAPICH

MPICH = {
    c: [
        x
        for x in mpi_libraries.mpich.candidates(c, 16, 1 << 20)
        if mpi_libraries.mpich.preserves_operand_order(c, x)
    ]
    for c in (ALLREDUCE, ALLTOALL, BCAST)
}
MPICH_COMMUTATIVE = {
    ALLREDUCE: [
        x
        for x in mpi_libraries.mpich.candidates(ALLREDUCE, 16, 1 << 20)
        if not mpi_libraries.mpich.preserves_operand_order(ALLREDUCE, x)
    ]
}


def csel_call(key: RuleKey, nbytes: int) -> mpich.CselCall:
    return mpich.CselCall(
        key.p,
        nbytes,
        commutative=key.operators == "commutative",
        ppn=key.ppn,
        blocks=key.collective.blocks(key.p)[0],
    )


def csel(library: str, layer: mpich.Layer = mpich.MPIR) -> Callable[[str], Decide]:
    def read(text: str) -> Decide:
        tree = mpich.parse(text, library, layer)
        return lambda key, nbytes: mpich.decide(tree, key.collective, csel_call(key, nbytes))

    return read


def csel_expected(
    generic: mpich.Tree, leaf_of: Callable[[Rule], mpich.Leaf | None] = mpich.leaf_for_rule
) -> Callable[[Rule | None, RuleKey, int], mpich.Leaf]:
    def expected(rule: Rule | None, key: RuleKey, nbytes: int) -> mpich.Leaf:
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

    return expected


# NCCL, UCC

NCCL = {
    c: [nccl_choice(way, channels) for way in algo_protos_of(c) for channels in (0, 1, 64)]
    for c in (ALLGATHER, ALLREDUCE, BCAST, REDUCE, REDUCE_SCATTER)
}
FALLBACK = AlgorithmChoice("ring_simple")
UCC_CHOICES = {
    c: [DEFAULT, *map(AlgorithmChoice, UCC[c])] for c in UCC if c not in UNSPLITTABLE_COLLECTIVES
}


def plugin(family: str) -> Callable[[str], Decide]:
    def read(text: str) -> Decide:
        rows = nccl.parse(text, family)

        def decided(key: RuleKey, nbytes: int) -> AlgorithmChoice | None:
            return nccl.decide(rows, nccl.PluginCall(key.collective, key.nodes, key.p, nbytes))

        return decided

    return read


def plugin_expected(family: str) -> Callable[[Rule | None, RuleKey, int], AlgorithmChoice | None]:
    left = FALLBACK if family == "nccl" else None
    return lambda rule, _key, _nbytes: (
        left if rule is None or rule.choice.is_default else rule.choice
    )


def sections(text: str) -> Decide:
    conf = ucc.parse(text)

    def decided(key: RuleKey, nbytes: int) -> AlgorithmChoice:
        return ucc.decide(conf, key.collective, ucc.Team(key.nodes, key.ppn), key.memory, nbytes)

    return decided


# Intel MPI, MVAPICH2


def presets(text: str) -> Decide:
    found = intelmpi.DIALECT.parse(text)
    return lambda key, n: intelmpi.DIALECT.decide(found, key.collective, key.p, n)


def numbers(text: str) -> Decide:
    found = mvapich2.DIALECT.parse(text)
    return lambda key, n: mvapich2.DIALECT.decide(found, key.collective, key.p, n)


PRESET = {c: [choice_of(n) for n in range(most + 1)] for c, most in MAX_PRESETS.items()}
NUMBERED = {c: [AlgorithmChoice(name) for name in known] for c, known in MVAPICH2.items()}
REORDERING = {
    ALLREDUCE: [
        x
        for x in mpi_libraries.openmpi.candidates(ALLREDUCE, 16, 1 << 20)
        if not mpi_libraries.openmpi.preserves_operand_order(ALLREDUCE, x)
    ]
}


def han(text: str) -> Decide:
    rules = openmpi.han.parse(text)
    return lambda key, nbytes: openmpi.han.decide(rules, key.collective, key.p, nbytes)


def han_expected(rule: Rule | None, key: RuleKey, nbytes: int) -> str:
    left = openmpi_expected(rule, key, nbytes).is_default
    return openmpi.han.HAN if left else openmpi.han.TUNED


def grown_into(tree: mpich.Tree) -> ExportOptions:
    return ExportOptions(base_rules=lambda _library, _layer: tree)


ALL = ExportOptions(commutative_only=True)
BOTH = ("any", "commutative")
CASES = [
    *(
        Case("openmpi", f"openmpi {version}", OPENMPI, FLAT, *rest)
        for version in ("4.1.8", "5.0.11")
        for rest in (
            (ExportOptions(), classic, openmpi_expected),
            (ALL, classic, openmpi_expected, ("commutative",), REORDERING),
        )
    ),
    Case("openmpi-han", "openmpi 5.0.11", OF_HAN, SEVERAL, ExportOptions(), han, han_expected),
    *(
        Case("openmpi-json", "openmpi 6.0.0", SIX, ENDS, *rest)
        for rest in (
            (ExportOptions(), from_six, openmpi_expected),
            (ALL, from_six, openmpi_expected, ("commutative",), REORDERING),
        )
    ),
    *(
        Case(
            name,
            library,
            MPICH,
            FLAT,
            grown_into(tree),
            csel(library),
            csel_expected(tree),
            BOTH,
            MPICH_COMMUTATIVE,
        )
        for name, library, tree in (
            ("mpich", "mpich 4.1.2", GENERIC),
            ("mpich", "mpich 5.0.2", GENERIC),
            ("mvapich", "mvapich 4.0", DENSE),
        )
    ),
    Case(
        "mpich-device",
        "mpich 5.0.2",
        MPICH,
        [(1, 2), (1, 6), (2, 4), (9, 1)],
        grown_into(BELOW),
        csel("mpich 5.0.2", mpich.DEVICE),
        csel_expected(BELOW, mpich.device.rule_to_leaf(BELOW)),
        BOTH,
        MPICH_COMMUTATIVE,
    ),
    *(
        Case(
            "nccl",
            f"{family} 2.27",
            NCCL,
            SPREAD,
            ExportOptions(fallback_algorithm=str(FALLBACK)),
            plugin(family),
            plugin_expected(family),
            memories=("cuda",),
        )
        for family in ("nccl", "rccl")
    ),
    Case(
        "ucc",
        "ucc 1.8.0",
        UCC_CHOICES,
        SPREAD,
        ExportOptions(),
        sections,
        own,
        memories=("host", "cuda"),
    ),
    *(
        Case("intelmpi", "intelmpi 2021.18.1", PRESET, [shape], ExportOptions(), presets, own)
        for shape in ((1, 6), (3, 11))
    ),
    Case("mvapich2", "mvapich2 2.3.7", NUMBERED, [(1, 6)], ALL, numbers, own, ("commutative",)),
]
BOUNDS = st.one_of(
    st.integers(1, 64), st.integers(1, 1 << 24), st.integers(0, 24).map(lambda bits: 1 << bits)
)
every_case = pytest.mark.parametrize("case", CASES, ids=str)
# Not the file of `han`, which says who answers a call and names no algorithm.
naming_case = pytest.mark.parametrize(
    "case", [case for case in CASES if case.name != "openmpi-han"], ids=str
)
FALLBACKS = {"nccl": "ring_simple", "intelmpi": "preset_1", "mvapich2": "binomial"}


@st.composite
def tables(draw: st.DrawFn, case: Case) -> TuningTable:
    """Draw rules of some collectives on some shapes, also for commutative operators alone."""
    rules: list[Rule] = []
    places = st.tuples(
        st.sampled_from(sorted(case.choices)),
        st.sampled_from(case.shapes),
        st.sampled_from(case.memories),
    )
    drawn = sorted(draw(st.sets(places, min_size=1, max_size=4)))
    for key in dict.fromkeys(RuleKey(name, *shape, memory) for name, shape, memory in drawn):
        collective = key.collective
        only = "commutative" in case.operators and collective.is_reduction and draw(st.booleans())
        rules += [] if only else draw(rule_lists(key, case.choices[collective]))
        further = [*case.choices[collective], *case.reordering.get(collective, ())]
        if only or (
            "commutative" in case.operators and collective.is_reduction and draw(st.booleans())
        ):
            rules += draw(rule_lists(replace(key, operators="commutative"), further))
    return TuningTable(CLUSTER, case.library, tuple(rules))


@st.composite
def rule_lists(draw: st.DrawFn, key: RuleKey, choices: Sequence[AlgorithmChoice]) -> list[Rule]:
    """Draw up to seven rules of one key, or one where calls have no size."""
    starts = sorted(draw(st.sets(BOUNDS, max_size=6 if key.collective.has_data else 0)))
    chosen = [draw(st.sampled_from(choices)) for _ in range(len(starts) + 1)]
    return rules_of(key, dict(zip([0, *starts], chosen, strict=True)))


def rules_of(key: RuleKey, choices: Mapping[int, AlgorithmChoice]) -> list[Rule]:
    """Return the rules of one key, from the first size of each."""
    bounds = [*choices, math.inf]
    return [
        Rule(key, int(lo), hi, choice, Evidence("measured"))
        for (lo, hi), choice in zip(pairwise(bounds), choices.values(), strict=True)
    ]


def two_rules(
    case: Case, first: AlgorithmChoice, second: AlgorithmChoice, memory: str = ""
) -> TuningTable:
    """Return a table for a broadcast that changes at 64 bytes."""
    key = RuleKey(BCAST, *case.shapes[-1], memory or case.memories[0])
    return TuningTable(CLUSTER, case.library, tuple(rules_of(key, {0: first, 64: second})))


def algorithms_of(case: Case) -> list[AlgorithmChoice]:
    """Return what a rule for a broadcast may name besides the default."""
    return [choice for choice in case.choices[BCAST] if not choice.is_default]


def calls(
    table: TuningTable, case: Case, further: Collection[int] = ()
) -> Iterator[tuple[RuleKey, int]]:
    """Yield calls of every kind that a file can tell apart, beside every bound of the table."""
    for collective in {key.collective for key in table.keys}:
        bounds = {0, *FAR, *further} | {
            r.start_bytes for r in table.rules if r.key.collective is collective
        }
        whole = case.name in ("intelmpi", "openmpi-han") and collective in PER_RANK_COLLECTIVES
        whole |= case.name in ("mpich", "mpich-device", "mvapich") and collective is ALLTOALL
        kinds = itertools.product(case.shapes, case.memories, case.operators)
        for shape, memory, operators in kinds:
            key = RuleKey(collective, *shape, memory, operators)
            share = key.p if whole else 1  # such calls have as many bytes for each rank
            sizes = {n // share * share + k * share for n in bounds for k in (-1, 0, 1)}
            yield from ((key, n) for n in sorted(sizes) if n >= 0)


def rule_of(table: TuningTable, key: RuleKey, nbytes: int) -> Rule | None:
    """Return the first rule that holds, of those for the operator or of those for any."""
    for candidate in (key, replace(key, operators="any")):
        for rule in table.rules:
            if rule.key == candidate and rule.start_bytes <= nbytes < rule.stop_bytes:
                return rule
    return None


def require_equal(case: Case, table: TuningTable, text: str) -> None:
    """Fail unless the library, reading the text, does what the table says."""
    decide = case.read(text)
    for key, nbytes in calls(table, case):
        expected = case.expected(rule_of(table, key, nbytes), key, nbytes)
        assert decide(key, nbytes) == expected, f"{key}, {nbytes} bytes"


@pytest.mark.slow
@every_case
@settings(max_examples=examples(50))
@given(data=st.data())
def test_a_file_says_what_its_table_says(case: Case, data: st.DataObject) -> None:
    """Files and tables agree at every bound of every rule and one byte to both sides."""
    table = data.draw(tables(case))
    text = case.emit(table)
    require_equal(case, table, text)
    assert case.check(table, text) == []


def told(decision: object) -> str:
    """Return the name of a decision where a file is explained."""
    match decision:
        case mpich.Leaf(name, parameters):
            return " ".join((name, *sorted(parameters)))
        case str(component):
            return f"component {component}"
    return str(decision or DEFAULT)


def explained(case: Case, text: str) -> Decide:
    """Return the explanation of a file for calls on so many nodes."""
    found = case.form.read(text, case.library)

    def decide(key: RuleKey, nbytes: int) -> str:
        call = AskedCall(key.collective, key.p, key.nodes, key.ppn, nbytes)
        rule = deciding_rule(found.rules, call)
        assert rule is None or rule.line > 0
        if case.name in ("mpich", "mpich-device", "mvapich", "openmpi-han"):
            return rule.runs if rule else "component han"
        return str(rule.choice or DEFAULT) if rule else str(DEFAULT)

    return decide


def require_explained(case: Case, table: TuningTable) -> None:
    """Fail unless a file is explained as the library reads it.

    MPICH takes ranks that are alone on their nodes for no parent, which `csel_call` leaves out, and
    an explanation is of calls with a commutative operator in host memory.
    """
    text = case.emit(table)
    decide, say = case.read(text), explained(case, text)
    alone = case.name.startswith(("mpich", "mvapich"))
    asked = (case.memories[0], case.operators[-1])
    for key, nbytes in calls(table, case):
        if (key.memory, key.operators) == asked and not (alone and key.ppn == 1):
            assert say(key, nbytes) == told(decide(key, nbytes)), f"{key}, {nbytes} bytes"


@pytest.mark.slow
@every_case
@settings(max_examples=examples(30))
@given(data=st.data())
def test_a_file_is_explained_as_its_library_reads_it(case: Case, data: st.DataObject) -> None:
    require_explained(case, data.draw(tables(case)))


@every_case
def test_an_exported_file_is_explained_and_has_no_line_without_effect(case: Case) -> None:
    """But for those of the library's own branches that MPICH's files repeat."""
    first, *_, last = algorithms_of(case)
    table = two_rules(case, first, last)
    require_explained(case, table)
    text = case.emit(table)
    assert recognise_format(text, case.library.split()[0]) is case.form
    if "base_rules" not in case.form.used_options:
        assert list(unreached(case.form.read(text, case.library).rules)) == []


@pytest.mark.slow
@every_case
@settings(max_examples=examples(50))
@given(data=st.data())
def test_a_check_finds_the_files_that_decide_otherwise(case: Case, data: st.DataObject) -> None:
    table = data.draw(tables(case))
    key = data.draw(st.sampled_from(table.keys))
    choices = [*case.choices[key.collective]]
    if key.operators == "commutative":
        choices += case.reordering.get(key.collective, ())
    kept = [rule for rule in table.rules if rule.key != key]
    changed = [*kept, *data.draw(rule_lists(key, choices))]
    text = case.emit(TuningTable(CLUSTER, case.library, tuple(changed)))
    decide, now = case.read(case.emit(table)), case.read(text)
    sizes = {rule.start_bytes for rule in (*table.rules, *changed)}
    if any(decide(k, n) != now(k, n) for k, n in calls(table, case, sizes)):
        assert case.check(table, text)


@every_case
def test_the_same_rules_make_the_same_file(case: Case) -> None:
    """Whatever their order, their evidence, and the name of the cluster."""
    first, *_, last = algorithms_of(case)
    table = two_rules(case, first, last)
    rules = [replace(r, evidence=Evidence("learned", (8,))) for r in table.rules[::-1]]
    cluster = replace(CLUSTER, name="another\n$(cluster)")
    other = TuningTable(cluster, case.library, tuple(rules), {"host": "another"})
    text = case.emit(table)
    assert case.emit(table) == case.emit(other) == text
    assert text.endswith("\n")
    assert all(line.isprintable() for line in text.splitlines())


@every_case
def test_a_file_is_recognized_by_its_content(case: Case) -> None:
    table = two_rules(
        case,
        DEFAULT if DEFAULT in case.choices[BCAST] else algorithms_of(case)[0],
        algorithms_of(case)[-1],
    )
    assert detect_format(table, case.emit(table)) is case.form
    assert "$PWD/FILE" in case.form.usage


@pytest.mark.parametrize(
    ("name", "text"), [("openmpi", "1 7\n1\n0\n1\n0 6 0 0\n"), ("mpich", '{"collectives": 0}')]
)
def test_a_file_without_a_signature_is_taken_for_the_usual_form(name: str, text: str) -> None:
    case = next(one for one in CASES if one.form.name == name)
    first, *_, last = algorithms_of(case)
    assert detect_format(two_rules(case, first, last), text) is case.form


@every_case
def test_tables_of_other_libraries_are_refused(case: Case) -> None:
    chosen = algorithms_of(case)[0]
    table = two_rules(case, chosen, chosen)
    case.form.require_library(table)
    for form in FORMATS.values():
        if case.library.split()[0] not in form.libraries:
            with pytest.raises(InputError, match=f"mean nothing in the format of {form.name}"):
                form.require_library(table)


def try_emit(case: Case, table: TuningTable) -> tuple[str, tuple[str, ...]]:
    """Return the file, "" if it is refused, and what is said about rules that are not in it."""
    try:
        return case.form.emit(table, case.options)
    except InputError as reason:
        return "", (str(reason),)


def require_refused(case: Case, table: TuningTable, rules: Sequence[Rule]) -> None:
    """Fail unless the first of the rules is refused, or all are reported and not in the file."""
    text, said = try_emit(case, table)
    names = [describe_rule(rule) for rule in rules]
    if text:
        assert list(said) == names
        kept = [replace(r, choice=DEFAULT) if r in rules else r for r in table.rules]
        require_equal(case, TuningTable(CLUSTER, case.library, tuple(kept)), text)
    else:
        assert names[0] in said[0]


@naming_case
@pytest.mark.parametrize("change", ["name", "parameter", "schedule"])
def test_unknown_algorithms_are_refused_or_left_out_by_name(case: Case, change: str) -> None:
    known = algorithms_of(case)[0]
    unknown = {
        "name": AlgorithmChoice("no_such_algorithm"),
        "parameter": replace(known, params={**known.params, "no_such_parameter": 8}),
        "schedule": replace(known, runner=SCHEDULE),
    }[change]
    table = two_rules(case, known, unknown)
    require_refused(case, table, table.rules[1:])


@naming_case
def test_rules_for_other_memory_are_refused_or_left_out_by_name(case: Case) -> None:
    known = algorithms_of(case)
    for memory in {"host", "cuda"} - {*case.memories}:
        table = two_rules(case, known[0], known[-1], memory)
        require_refused(case, table, table.rules)


@every_case
def test_what_no_rule_is_for_is_left_to_the_library(case: Case) -> None:
    """A table without rules and one whose rules leave all to the library are alike."""
    own = two_rules(case, DEFAULT, DEFAULT)
    require_equal(case, own, case.emit(own))
    assert case.check(own, case.emit(own)) == []
    text, said = try_emit(case, TuningTable(CLUSTER, case.library, ()))
    if text:
        require_equal(case, own, text)
    else:
        assert "the table has" in said[0]


@pytest.mark.parametrize("name", sorted(FALLBACKS))
def test_a_fallback_stands_for_the_default(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    chosen = next(c for c in algorithms_of(case) if c.algorithm != FALLBACKS[name])
    table = two_rules(case, DEFAULT, chosen)
    with pytest.raises(InputError, match="--fallback-algorithm"):
        case.form.emit(table, replace(case.options, fallback_algorithm=""))
    with pytest.raises(InputError, match="no_such_algorithm"):
        case.form.emit(table, replace(case.options, fallback_algorithm="no_such_algorithm"))
    options = replace(case.options, fallback_algorithm=FALLBACKS[name])
    text, _ = case.form.emit(table, options)
    assert case.form.check(table, text, options) == []
    decide = case.read(text)
    said = [decide(table.keys[0], nbytes) for nbytes in (0, 63, 64)]
    assert said == [AlgorithmChoice(FALLBACKS[name])] * 2 + [chosen]
    assert case.form.fallback_rule_count(table, options) == 1


def test_formats_that_can_leave_calls_to_the_library_need_no_fallback() -> None:
    users = {name for name, form in FORMATS.items() if "fallback_algorithm" in form.used_options}
    assert users == {*FALLBACKS}
    for case in CASES:
        if case.name not in FALLBACKS or case.library.startswith("rccl"):
            table = two_rules(case, DEFAULT, algorithms_of(case)[0])
            assert case.form.fallback_rule_count(table, case.options) == 0
            require_equal(case, table, case.emit(table))


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if "commutative_only" in c.form.used_options and ALLREDUCE in c.reordering],
    ids=str,
)
def test_rules_for_commutative_operators_stay_out_unless_asked_for(case: Case) -> None:
    key = RuleKey(ALLREDUCE, *case.shapes[-1])
    safe = rules_of(key, {0: next(c for c in case.choices[ALLREDUCE] if not c.is_default)})
    reordering = rules_of(replace(key, operators="commutative"), {0: case.reordering[ALLREDUCE][0]})
    both = TuningTable(CLUSTER, case.library, (*safe, *reordering))
    plain = replace(case.options, commutative_only=False)
    alone = TuningTable(CLUSTER, case.library, tuple(safe))
    assert case.form.emit(both, plain) == case.form.emit(alone, plain)
    asked = replace(case.options, commutative_only=True)
    assert case.form.emit(both, asked) != case.form.emit(alone, asked)


def damaged(text: str) -> Iterator[str]:
    """Yield a file cut short, with bytes of no text, with numbers that are none, and repeated."""
    yield from (text[: len(text) * part // 7] for part in range(7))
    yield from (re.sub(r"\b[0-9]+\b", number, text, count=3) for number in MISREAD)
    yield from (text + text, "[" * 100_000, "{" * 100_000, "\0", "\ud800", "9" * 5000, text[::-1])


@every_case
def test_damaged_files_are_refused_in_one_sentence(case: Case) -> None:
    """Or compared: a file that is cut between two rules is a file of fewer rules."""
    first, *_, last = algorithms_of(case)
    table = two_rules(case, first, last)
    for text in damaged(case.emit(table)):
        try:
            said = case.check(table, text)
        except InputError as reason:
            said = [str(reason)]
        assert all(sentence.isprintable() and len(sentence) < 600 for sentence in said)


@every_case
def test_a_damaged_line_is_named(case: Case) -> None:
    first, *_, last = algorithms_of(case)
    table = two_rules(case, first, last)
    lines = case.emit(table).splitlines()
    for number in range(1, len(lines) + 1):
        text = "\n".join([*lines[: number - 1], "no such line", *lines[number - 1 :], ""])
        with pytest.raises(InputError, match=rf"line {number}\b"):
            case.check(table, text)


def test_every_format_is_tested() -> None:
    assert {case.name for case in CASES} == set(FORMATS)


@every_case
def test_damaged_files_are_explained_or_refused_in_one_sentence(case: Case) -> None:
    first, *_, last = algorithms_of(case)
    for text in damaged(case.emit(two_rules(case, first, last))):
        try:
            found = case.form.read(text, case.library)
            said = [caution.text for caution in (*found.cautions, *unreached(found.rules))]
        except InputError as reason:
            said = [str(reason)]
        assert all(sentence.isprintable() and len(sentence) < 600 for sentence in said)
