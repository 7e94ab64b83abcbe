"""Open MPI's `coll/tuned` component: how algorithms are forced, and which others run instead.

Redirections inside an algorithm (too few elements, too large a segment):
ompi/mca/coll/base/coll_base_bcast.c and coll_base_allreduce.c.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuner.base.errors import InputError
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import AlgorithmChoice
from tuner.mpi_libraries.capabilities import Capabilities, Guard
from tuner.mpi_libraries.openmpi_collectives import COLLECTIVES
from tuner.mpi_libraries.openmpi_rule_numbers import (
    DEFAULT_CHAINS,
    RADIX,
    choice_of,
    rule_parameters,
)


def _stem(collective: Collective) -> str:
    return f"coll_tuned_{collective}_algorithm"


_LIMITS = [f"{_stem(one)}_max_requests" for one, known in COLLECTIVES.items() if known.throttled]
ALGORITHMS = {collective: known.algorithms for collective, known in COLLECTIVES.items()}
# Bytes of the smallest call, over the whole buffer, that may run an algorithm with a segment. With
# a datatype of size 0, which the library itself uses on intercommunicators, a call of any count has
# 0 bytes: `split_binary` of bcast then divides the segment by 0, which ends the program (measured
# with 5.0.11 on 3 and 4 ranks, where every other algorithm survives, with and without a segment).
MIN_SEGMENTED_BYTES = 1
RADIX_VARIABLE = "coll_tuned_bcast_algorithm_knomial_radix"  # read at every call
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
    known = COLLECTIVES[collective].parameters(name)
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
