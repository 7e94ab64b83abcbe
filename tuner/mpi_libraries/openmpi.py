"""The names of the algorithms in Open MPI's `coll/tuned` component, and what it can do with them.

Numbers: `ompi_info --param coll tuned --level 9` of Open MPI 5.0. Redirections inside an
algorithm (too few elements, too large a segment): ompi/mca/coll/base/coll_base_bcast.c and
coll_base_allreduce.c. Operand order: measured, see tests/mpi/test_noncommutative.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tuner.base.errors import InputError
from tuner.base.spelling import did_you_mean
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import DEFAULT, LIBRARY, AlgorithmChoice
from tuner.mpi_libraries.capabilities import Capabilities, Guard
from tuner.mpi_libraries.products import OPENMPI, has_since, release_of


@dataclass(frozen=True)
class OpenMpiCollective:
    """A collective as `coll/tuned` has it.

    number              its number in rules files
    algorithms          names by number; 0 is the library default
    library_names       the library's own names of algorithms that have others here
    segmented           algorithms that take a segment size
    throttled           algorithms that take the most requests in flight
    commutative_only    algorithms for commutative operators only. All but `rabenseifner` change the
                        order of operands; `rabenseifner` hands non-commutative operators to
                        `linear`, which takes at least twice as long as the default
                        (coll_base_allreduce.c, coll_base_reduce.c; measured on four emulated hosts)
    wrong_in_place      algorithms that give every rank wrong data with MPI_IN_PLACE: measured with
                        5.0.11 on 2 to 8 ranks
    is_blind_in_place   whether calls in place are taken for calls of 0 bytes: measured with 5.0.11
    has_segments        whether the library has variables for its segments and chains
    is_in_han           whether `coll/han` of version 5.0 has it
    is_staged           whether device buffers are copied to the host
    """

    number: int
    algorithms: tuple[str, ...]
    library_names: Mapping[str, str] = field(default_factory=dict)
    segmented: tuple[str, ...] = ()
    throttled: tuple[str, ...] = ()
    commutative_only: tuple[str, ...] = ()
    wrong_in_place: tuple[str, ...] = ()
    is_blind_in_place: bool = False
    has_segments: bool = True
    is_in_han: bool = True
    is_staged: bool = False


COLLECTIVES = {
    Collective.ALLGATHER: OpenMpiCollective(
        0,
        (
            DEFAULT,
            "linear",
            "bruck",
            "recursive_doubling",
            "ring",
            "neighbor_exchange",
            "two_proc",
            "sparbit",
        ),
        wrong_in_place=("sparbit",),
        is_blind_in_place=True,
    ),
    Collective.ALLREDUCE: OpenMpiCollective(
        2,
        (
            DEFAULT,
            "linear",
            "nonoverlapping",
            "recursive_doubling",
            "ring",
            "segmented_ring",
            "rabenseifner",
        ),
        segmented=("segmented_ring",),
        commutative_only=("ring", "segmented_ring", "rabenseifner"),
        is_staged=True,
    ),
    Collective.ALLTOALL: OpenMpiCollective(
        3,
        (DEFAULT, "linear", "pairwise", "bruck", "spread_out", "two_proc"),
        library_names={"bruck": "modified_bruck", "spread_out": "linear_sync"},
        throttled=("spread_out",),
        is_blind_in_place=True,
        is_in_han=False,
    ),
    Collective.ALLTOALLV: OpenMpiCollective(
        4,
        (DEFAULT, "linear", "pairwise"),
        library_names={"linear": "basic_linear"},
        has_segments=False,
        is_in_han=False,
    ),
    Collective.BARRIER: OpenMpiCollective(
        6,
        (
            DEFAULT,
            "linear",
            "double_ring",
            "recursive_doubling",
            "dissemination",
            "two_proc",
            "binomial",
        ),
        library_names={"dissemination": "bruck", "binomial": "tree"},
        has_segments=False,
    ),
    Collective.BCAST: OpenMpiCollective(
        7,
        (
            DEFAULT,
            "linear",
            "chain",
            "pipeline",
            "split_binary",
            "binary",
            "binomial",
            "knomial",
            "scatter_allgather",
            "scatter_allgather_ring",
        ),
        segmented=("chain", "pipeline", "split_binary", "binary", "binomial", "knomial"),
    ),
    Collective.GATHER: OpenMpiCollective(
        9, (DEFAULT, "linear", "binomial", "linear_sync"), segmented=("linear_sync",)
    ),
    Collective.REDUCE: OpenMpiCollective(
        11,
        (
            DEFAULT,
            "linear",
            "chain",
            "pipeline",
            "binary",
            "binomial",
            "in_order_binary",
            "rabenseifner",
        ),
        segmented=("chain", "pipeline", "binary", "binomial", "in_order_binary"),
        commutative_only=("chain", "pipeline", "binary", "binomial", "rabenseifner"),
        is_staged=True,
    ),
    Collective.SCATTER: OpenMpiCollective(
        15, (DEFAULT, "linear", "binomial", "linear_nonblocking")
    ),
}


def _stem(collective: Collective) -> str:
    return f"coll_tuned_{collective}_algorithm"


_LIMITS = [f"{_stem(one)}_max_requests" for one, known in COLLECTIVES.items() if known.throttled]
ALGORITHMS = {collective: known.algorithms for collective, known in COLLECTIVES.items()}
COLLECTIVE_OF = {known.number: collective for collective, known in COLLECTIVES.items()}
# Collectives that are only known by name here, by their number in rules files.
OTHER_COLLECTIVES = {
    1: "allgatherv",
    8: "exscan",
    12: "reduce_scatter",
    13: "reduce_scatter_block",
    14: "scan",
}
# Largest algorithm number of each collective number from these releases on
# (coll_tuned_<collective>_decision.c of v4.0.0, v4.1.0, v5.0.0 and of branch v6.0.x).
MAX_ALGORITHM_NUMBERS = {
    (4, 0): {0: 6, 1: 5, 2: 6, 3: 5, 4: 2, 6: 6, 7: 9, 8: 2, 9: 3, 11: 7, 12: 4, 13: 4, 14: 2}
    | {15: 2},
    (4, 1): {15: 3},
    (5, 0): {0: 7, 1: 6},
    (6, 0): {0: 8, 2: 7, 11: 8},
}
NEWEST_CLASSIC = (5, 0)  # the last series whose own form of rules files is not JSON
# Names of algorithms that 6.0 added or renamed, with their numbers.
NEW_NAMES = {
    Collective.ALLGATHER: {"bruck-k-fanout": 2, "direct-messaging": 8},
    Collective.ALLREDUCE: {"allgather_reduce": 7},
    Collective.REDUCE: {"knomial": 8},
}
# Bytes of the smallest call, over the whole buffer, that may run an algorithm with a segment. With
# a datatype of size 0, which the library itself uses on intercommunicators, a call of any count has
# 0 bytes: `split_binary` of bcast then divides the segment by 0, which ends the program (measured
# with 5.0.11 on 3 and 4 ranks, where every other algorithm survives, with and without a segment).
MIN_SEGMENTED_BYTES = 1
RADIX = 4  # radix of every k-nomial tree: one parameter of the whole program, not of a rule
RADIX_VARIABLE = "coll_tuned_bcast_algorithm_knomial_radix"  # read at every call
DEFAULT_CHAINS = 4  # coll_tuned_init_chain_fanout
VARIABLE_PREFIX = "OMPI_MCA_"  # prefix of parameters in the environment
# Matches NAME=VALUE of variables that override the library's decisions: a forced algorithm, another
# radix, a file of rules, and a list of components without coll/tuned or with others before it.
# `use_dynamic_rules` alone overrides nothing, nor does excluding coll/han.
OVERRIDING_PATTERN = (
    rf"{VARIABLE_PREFIX}coll_tuned_({'|'.join(ALGORITHMS)})_algorithm=(?!0$|ignore$).+"
    rf"|{VARIABLE_PREFIX}{RADIX_VARIABLE}=(?!{RADIX}$).+"
    rf"|{VARIABLE_PREFIX}({'|'.join(_LIMITS)})=(?!0$).+"
    rf"|{VARIABLE_PREFIX}coll_tuned_priority=.+"
    rf"|{VARIABLE_PREFIX}coll_(tuned|han)_dynamic_rules_filename=.+"
    rf"|{VARIABLE_PREFIX}coll=(\^(\w+,)*tuned\b.*|(?!\^)(?!(\w+,)*tuned\b).+)"
)
# Such parameters that parameter files may set, too.
OVERRIDING_VARIABLES = (
    "coll",
    "coll_tuned_dynamic_rules_filename",
    "coll_han_dynamic_rules_filename",
    RADIX_VARIABLE,
    *(_stem(collective) for collective in ALGORITHMS),
    *_LIMITS,
)
DYNAMIC_RULES_VARIABLE = "coll_tuned_use_dynamic_rules"  # required to force an algorithm
CONTROL_VARIABLES = (  # all that the tuner uses
    DYNAMIC_RULES_VARIABLE,
    "coll_tuned_dynamic_rules_filename",
    RADIX_VARIABLE,
    *(
        f"{_stem(collective)}{part}"
        for collective, known in COLLECTIVES.items()
        for part in ("", "_segmentsize", "_chain_fanout")
        if known.has_segments or not part
    ),
    *_LIMITS,
)
PROBE_SEGMENT_BYTES = (32 * 1024, 128 * 1024)  # segment sizes that are probed
PROBE_CHAINS = (2, 4)
PROBE_REQUESTS = (4, 16, 64)
# Releases from which on, in each series, rules files may limit the requests in flight: the column
# of version-2 files (coll_tuned_dynamic_file.c of v4.1.8 and v5.0.7).
FIRST_WITH_REQUESTS = ((4, 1, 8), (5, 0, 7))
# Releases from which on coll/tuned has its present decisions (coll_tuned_decision_fixed.c), and
# from which on coll/han comes before it on several nodes.
FIRST_OF_DECISIONS = (4, 1)
FIRST_WITH_HAN = (5,)


class RuleParameters(NamedTuple):
    """The numbers of a rule; the segment size is in bytes, and 0 stands for no limit."""

    algorithm: int
    chains: int = 0
    segment_bytes: int = 0
    requests: int = 0


def rule_parameters(
    collective: Collective, choice: AlgorithmChoice, library: str = ""
) -> RuleParameters:
    """Return the numbers of a choice in rules.

    library     `openmpi 4.1.4` or what is built on it, whose rules files must be able to express
                it; "" for the newest release

    Raises InputError for an algorithm or parameter that Open MPI does not have.
    """
    known = COLLECTIVES.get(collective)
    if choice.runner != LIBRARY:
        raise InputError(f"{collective} {choice}: Open MPI's rules file cannot express this")
    if known is None:
        raise InputError(f"Open MPI rules for {collective} are not supported: drop these rules")
    names = known.algorithms
    if choice.algorithm not in names:
        raise InputError(
            f"Open MPI has no {collective} algorithm {choice.algorithm!r}"
            f"{did_you_mean(choice.algorithm, names)}: it has {', '.join(names)}"
        )
    if choice.algorithm in known.wrong_in_place:
        raise InputError(
            f"{collective} {choice.algorithm} gives wrong results for calls in place in Open MPI:"
            " choose another algorithm"
        )
    parameters = _parameter_names(collective, choice.algorithm)
    for name in choice.params:
        if name not in parameters:
            raise InputError(
                f"{collective} {choice.algorithm} takes no parameter {name!r} in Open MPI:"
                f" it takes {', '.join(parameters) or 'none'}"
            )
    if choice.params.get("radix", RADIX) != RADIX:
        raise InputError(
            f"{collective} {choice}: Open MPI has one radix, {RADIX}, for the whole program;"
            " a rule cannot set another"
        )
    if choice.params.get("requests") and not reads_requests(library):
        first = " and ".join(".".join(map(str, release)) for release in FIRST_WITH_REQUESTS)
        raise InputError(
            f"{collective} {choice}: rules files of {library} cannot limit the requests in"
            f" flight; those of Open MPI from {first} on can"
        )
    return _numbers(collective, choice)


def max_algorithm_numbers(library: str) -> Mapping[int, int]:
    """Return the largest algorithm number of each collective number in a release.

    library     `openmpi 4.1.4`; without a release the last that reads no JSON, and one before 4.0
                is taken for 4.0
    """
    release, found = release_of(library) or NEWEST_CLASSIC, dict[int, int]()
    for first, numbers in MAX_ALGORITHM_NUMBERS.items():
        if first == (4, 0) or release >= first:
            found |= numbers
    return found


def reads_requests(library: str) -> bool:
    """Return whether rules files of this library may limit the requests in flight."""
    name, release = library.partition(" ")[0], release_of(library)
    return name in ("", OPENMPI) and (not release or has_since(release, FIRST_WITH_REQUESTS))


def is_expressible(collective: Collective, choice: AlgorithmChoice, library: str = "") -> bool:
    """Return whether a rule can express this choice, as `rule_parameters` tells.

    A file may name algorithms that the library lacks, and all k-nomial trees of a program have one
    radix.
    """
    try:
        rule_parameters(collective, choice, library)
    except InputError:
        return False
    return True


def _numbers(collective: Collective, choice: AlgorithmChoice) -> RuleParameters:
    params = choice.params
    chains = params.get("chains", DEFAULT_CHAINS) if choice.algorithm == "chain" else 0
    number = ALGORITHMS[collective].index(choice.algorithm)
    return RuleParameters(number, chains, params.get("segment", 0), params.get("requests", 0))


def choice_of(
    collective: Collective, number: int, chains: int = 0, segment: int = 0, requests: int = 0
) -> AlgorithmChoice:
    """Return the choice that `rule_parameters` turns into these numbers, without unused ones."""
    name = ALGORITHMS[collective][number]
    values = {"segment": segment, "chains": chains or 1, "radix": RADIX, "requests": requests}
    known = {key: values[key] for key in _parameter_names(collective, name)}
    return AlgorithmChoice(name, {key: value for key, value in known.items() if value})


def canonical_choice(collective: Collective, choice: AlgorithmChoice) -> AlgorithmChoice:
    """Return the choice with every relevant parameter; raises as `rule_parameters` does."""
    return choice_of(collective, *rule_parameters(collective, choice))


def _parameter_names(collective: Collective, algorithm: str) -> tuple[str, ...]:
    known = COLLECTIVES[collective]
    return (
        (("segment",) if algorithm in known.segmented else ())
        + (("requests",) if algorithm in known.throttled else ())
        + (("chains",) if algorithm == "chain" else ())
        + (("radix",) if algorithm == "knomial" else ())
    )


def guards(collective: Collective) -> tuple[Guard, ...]:
    """Return what must hold of control variables for algorithms of a collective to be forced."""
    return (Guard(_stem(collective), 0),)


def settings(collective: Collective, choice: AlgorithmChoice) -> dict[str, int | str]:
    """Return the control variables that force `choice`, none for the library's default.

    They act on communicators that are created afterwards, and only while
    `coll_tuned_use_dynamic_rules` is 1.
    """
    if choice.is_default:
        return {}
    radix = choice.params.get("radix", RADIX)
    usual = AlgorithmChoice(choice.algorithm, {**choice.params, "radix": RADIX}, choice.runner)
    numbers = rule_parameters(collective, choice if radix == RADIX else usual)
    stem = _stem(collective)
    forced: dict[str, int | str] = {stem: numbers.algorithm}
    if COLLECTIVES[collective].has_segments:
        forced[f"{stem}_segmentsize"] = numbers.segment_bytes
        forced[f"{stem}_chain_fanout"] = numbers.chains or DEFAULT_CHAINS
    if COLLECTIVES[collective].throttled:
        forced[f"{stem}_max_requests"] = numbers.requests
    return forced if radix == RADIX else {**forced, RADIX_VARIABLE: radix}


def preserves_operand_order(collective: Collective, choice: AlgorithmChoice) -> bool:
    """Return whether non-commutative operators run `choice` itself and keep their result."""
    known = COLLECTIVES.get(collective)
    return known is None or choice.algorithm not in known.commutative_only


def min_call_bytes(choice: AlgorithmChoice) -> int:
    """Return the bytes, over the whole buffer, of the smallest call that may run a choice."""
    return MIN_SEGMENTED_BYTES if choice.params.get("segment") else 0


def unsupported_reason(collective: Collective, choice: AlgorithmChoice, p: int) -> str:
    """Return why calls on `p` ranks would fail; "" when they do not."""
    if choice.algorithm == "two_proc" and p != 2:
        return f"{choice.algorithm} is refused by {p} ranks"
    return ""


def substitution_reason(
    collective: Collective,
    choice: AlgorithmChoice,
    p: int,
    nbytes: int,
    element_bytes: int = PROBE_ELEMENT_BYTES,
) -> str:
    """Return why the library would silently run another algorithm; "" when it does not.

    The reason may also be that the call would fail (`unsupported_reason`).
    """
    other, because = _substitution(collective, choice, p, nbytes, element_bytes)
    told = f"{choice.algorithm} runs as {other} because {because}" if other else ""
    return unsupported_reason(collective, choice, p) or told


def effective_algorithm(
    collective: Collective, choice: AlgorithmChoice, p: int, nbytes: int
) -> AlgorithmChoice:
    """Return what really runs where `choice` is asked for, with 4-byte elements."""
    other, _ = _substitution(collective, choice, p, nbytes, PROBE_ELEMENT_BYTES)
    return choice_of(collective, ALGORITHMS[collective].index(other)) if other else choice


def _substitution(
    collective: Collective, choice: AlgorithmChoice, p: int, nbytes: int, element_bytes: int
) -> tuple[str, str]:
    """Return the algorithm that a call is handed to and why; two empty strings for none."""
    count, segment = nbytes // element_bytes, choice.params.get("segment", 0)
    name, few = choice.algorithm, f"{count} elements are fewer than {p} ranks"
    if collective is Collective.BCAST:
        if name.startswith("scatter_allgather") and count < p:
            return "linear", few
        if name == "split_binary" and (count < 2 or segment > count // 2 * element_bytes):
            return "chain", "half the message is less than a segment"
    if collective is Collective.ALLREDUCE:
        if name in ("ring", "segmented_ring") and count < p:
            return "recursive_doubling", few
        if name == "segmented_ring" and (
            segment == 0 or count < p * max(1, segment // element_bytes)
        ):
            return "ring", f"a share of {nbytes}/{p} bytes is below a segment"
        if name == "rabenseifner" and count < 1 << (p.bit_length() - 1):
            return "linear", f"{count} elements are too few for {p} ranks"
    if collective is Collective.REDUCE and name == "rabenseifner" and count < p:
        return "linear", few
    return _allgather_substitution(name, p) if collective is Collective.ALLGATHER else ("", "")


def _allgather_substitution(name: str, p: int) -> tuple[str, str]:
    """Return the substitute for an allgather algorithm and why (coll_base_allgather.c)."""
    if name == "recursive_doubling" and p & (p - 1):
        return "bruck", f"{p} ranks are not a power of two"
    if name == "neighbor_exchange" and p % 2:
        return "ring", f"{p} ranks are odd"
    return "", ""


def candidates(
    collective: Collective,
    p: int,
    nbytes: int,
    segments: Sequence[int] = PROBE_SEGMENT_BYTES,
    radices: Sequence[int] = (RADIX,),
) -> list[AlgorithmChoice]:
    """Return every algorithm worth timing for a call with 4-byte elements, the default first.

    segments    a segmented choice is offered only where the message is longer than its segment
    radices     a radix is offered only where it makes another tree; rules can express only `RADIX`

    Configs that would run as another algorithm at this size are left out. Raises InputError for
    collectives whose algorithms are not known here.
    """
    if collective not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise InputError(f"no candidates for {collective}: Open MPI is probed with {known}")
    choices = [AlgorithmChoice()]
    for name in ALGORITHMS[collective][1:]:
        if name not in COLLECTIVES[collective].wrong_in_place:
            choices += _choices_of_algorithm(collective, name, p, nbytes, segments, radices)
    return [choice for choice in choices if not substitution_reason(collective, choice, p, nbytes)]


def _choices_of_algorithm(
    collective: Collective,
    name: str,
    p: int,
    nbytes: int,
    segments: Sequence[int],
    radices: Sequence[int],
) -> Iterator[AlgorithmChoice]:
    known = _parameter_names(collective, name)
    fixed: list[dict[str, int]] = [{}]
    if "radix" in known:
        fixed = [{"radix": k} for k in radices if k == RADIX or k < p]
    if "chains" in known:
        fixed = [{"chains": n} for n in PROBE_CHAINS if n < p - 1]
    if "requests" in known:
        fixed = [{}, *({"requests": n} for n in PROBE_REQUESTS if n < p - 1)]
    for params in fixed:
        yield AlgorithmChoice(name, params)
        if "segment" in known:
            for segment in segments:
                if segment < nbytes:
                    yield AlgorithmChoice(name, {"segment": segment, **params})


def startup_settings(capabilities: Capabilities) -> Mapping[str, str]:
    """Return the settings that a program must be started with for algorithms to be forced.

    Up to 4.1.6 and from 5.0.0 to 5.0.5 Open MPI takes `coll_tuned_use_dynamic_rules` from the
    environment alone. With it, and no algorithm forced, the library decides as without.
    """
    return (
        {DYNAMIC_RULES_VARIABLE: "1"} if capabilities.startup_only([DYNAMIC_RULES_VARIABLE]) else {}
    )
