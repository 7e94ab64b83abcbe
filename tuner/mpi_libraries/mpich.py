"""MPICH's names for the algorithms, and what it can do with them.

Names and restrictions: src/mpi/coll/coll_algorithms.txt of MPICH 5.0. The library has more
algorithms than have a canonical name here; the others can run only by the library's own decision.
Algorithms are forced by name, because the numbers behind the names change between versions, and not
every version has all of them (`tuner.mpi_libraries.capabilities`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.base.errors import InputError
from tuner.base.spelling import did_you_mean
from tuner.core.collective import PROBE_ELEMENT_BYTES, Collective
from tuner.core.table import DEFAULT, LIBRARY, AlgorithmChoice
from tuner.mpi_libraries.capabilities import Capabilities, Guard


@dataclass(frozen=True)
class NativeAlgorithm:
    """One algorithm of the library.

    name                value of MPIR_CVAR_<COLLECTIVE>_INTRA_ALGORITHM
    fixed_parameters    parameters that make it the canonical algorithm; a leaf must give every
                        parameter
    segment_parameter   the parameter that takes the segment size, "" when it has none
    variables           control variables of parameters, without MPIR_CVAR_<COLLECTIVE>_
    throttled           whether it takes the most requests in flight, which no file of rules holds
    restrictions        conditions under which the library may run it at all
    """

    name: str
    fixed_parameters: Mapping[str, str | int] = field(default_factory=dict)
    segment_parameter: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    throttled: bool = False
    restrictions: tuple[str, ...] = ()


_PIPELINE = NativeAlgorithm(
    "pipelined_tree",
    {"tree_type": "kary", "is_non_blocking": 1, "recv_pre_posted": 0},
    "chunk_size",
    {
        "k": "TREE_KVAL",
        "is_non_blocking": "IS_NON_BLOCKING",
        "chunk_size": "TREE_PIPELINE_CHUNK_SIZE",
        "recv_pre_posted": "RECV_PRE_POST",
    },
)


def _pipeline(children: int) -> NativeAlgorithm:
    """Return the pipelined tree in which a rank has so many children."""
    return replace(_PIPELINE, fixed_parameters={**_PIPELINE.fixed_parameters, "k": children})


IN_PLACE, NOT_IN_PLACE = "is_sendbuf_inplace=yes", "is_sendbuf_inplace=no"
POWER_OF_TWO = "comm_size=pow2"
AUTO_ALGORITHM = 0  # the enumeration's value for the library's own decision
# All algorithms of blocking calls within a communicator, each with the conditions under which the
# library's variables force it; files are not held to them (coll_algorithms.txt of MPICH 5.0). Those
# of `smp` that MPICH's own file does not heed are left out: it was seen to be right without.
INTRA_ALGORITHMS = {
    "allgather": "brucks k_brucks recursive_doubling:pow2 ring recexch_doubling recexch_halving",
    "allgatherv": "brucks recursive_doubling:pow2 ring",
    "allreduce": "smp:parent recursive_doubling recursive_multiplying:commutative"
    " reduce_scatter_allgather:built_in:count tree recexch ring:commutative"
    " k_reduce_scatter_allgather:commutative ccl",
    "alltoall": "brucks:copied k_brucks:copied pairwise:copied pairwise_sendrecv_replace:in_place"
    " scattered:copied",
    "alltoallv": "pairwise_sendrecv_replace:in_place scattered:copied",
    "alltoallw": "pairwise_sendrecv_replace:in_place scattered:copied",
    "barrier": "k_dissemination recexch smp:parent",
    "bcast": "binomial scatter_recursive_doubling_allgather scatter_ring_allgather smp:parent tree"
    " pipelined_tree",
    "exscan": "recursive_doubling",
    "gather": "binomial",
    "reduce": "binomial smp:parent reduce_scatter_gather:built_in:count",
    "reduce_scatter": "noncommutative pairwise:commutative recursive_doubling"
    " recursive_halving:commutative",
    "reduce_scatter_block": "noncommutative:pow2 recursive_doubling pairwise:commutative"
    " recursive_halving:commutative",
    "scan": "smp recursive_doubling",
    "scatter": "binomial",
}
RESTRICTIONS = {
    "commutative": "is_commutative=yes",
    "parent": "comm_hierarchy=parent",
    "pow2": POWER_OF_TWO,
    "built_in": "is_op_built_in=yes",
    "count": "count>=pow2",
    "in_place": IN_PLACE,
    "copied": NOT_IN_PLACE,
}


def intra_restrictions(collective: str) -> dict[str, tuple[str, ...]]:
    """Return the library's algorithms of a collective, with the conditions of each."""
    words = (word.split(":") for word in INTRA_ALGORITHMS.get(collective, "").split())
    return {name: tuple(RESTRICTIONS[one] for one in asked) for name, *asked in words}


_NAMED = {
    Collective.BCAST: {
        "pipeline": _pipeline(1),
        "binary": _pipeline(2),
        "binomial": NativeAlgorithm("binomial"),
        "scatter_allgather": NativeAlgorithm("scatter_recursive_doubling_allgather"),
        "scatter_allgather_ring": NativeAlgorithm("scatter_ring_allgather"),
    },
    # Without `ring`, whose pieces are as long as the datatype of each rank says: ranks that write
    # one signature with different datatypes would wait for ever (allgatherv_intra_ring.c).
    Collective.ALLGATHERV: {
        "bruck": NativeAlgorithm("brucks"),
        "recursive_doubling": NativeAlgorithm("recursive_doubling"),
    },
    Collective.ALLREDUCE: {
        "recursive_doubling": NativeAlgorithm("recursive_doubling"),
        "ring": NativeAlgorithm("ring"),
        "rabenseifner": NativeAlgorithm("reduce_scatter_allgather"),
    },
    Collective.ALLTOALL: {
        "bruck": NativeAlgorithm("brucks"),
        "pairwise_exchange": NativeAlgorithm("pairwise"),
        # In batches of THROTTLE_VARIABLE requests for the whole program.
        "spread_out": NativeAlgorithm("scattered"),
    },
    Collective.ALLTOALLV: {  # which no file of rules has, so each rule may have batches of its own
        "spread_out": NativeAlgorithm("scattered", throttled=True)
    },
    Collective.BARRIER: {
        "dissemination": NativeAlgorithm(
            "k_dissemination", {"k": 2}, variables={"k": "DISSEM_KVAL"}
        ),
        "recursive_doubling": NativeAlgorithm(
            "recexch",
            {"k": 2, "single_phase_recv": 0},
            variables={"k": "RECEXCH_KVAL", "single_phase_recv": "RECEXCH_SINGLE_PHASE_RECV"},
        ),
    },
}
ALGORITHMS = {
    collective: {
        name: replace(one, restrictions=intra_restrictions(collective)[one.name])
        for name, one in known.items()
    }
    for collective, known in _NAMED.items()
}
# Tables do not hold MPI_Reduce_scatter, of which only what the library runs by itself is known.
DECIDED_ALGORITHMS = {
    **ALGORITHMS,
    Collective.REDUCE_SCATTER: {
        name: NativeAlgorithm(name) for name in ("recursive_halving", "pairwise")
    },
}
# The device layer (ch4: shared memory, network offload) answers a collective first where its own
# variable MPIR_CVAR_<COLLECTIVE>_DEVICE_COLLECTIVE is 1, and every collective where this one is 0.
DEVICE_COLLECTIVES = "MPIR_CVAR_DEVICE_COLLECTIVES"
ALL_DEVICE_COLLECTIVES = 0
# The library reads control variables under all of these.
VARIABLE_PREFIX = "MPI(R_CVAR|R_PARAM|CH)_"
# Matches NAME=VALUE of variables that override the library's decisions: a forced algorithm or
# composition, a file of rules, and which collectives the device layer answers.
OVERRIDING_PATTERN = (
    # I: a non-blocking collective
    rf"{VARIABLE_PREFIX}(?!I)\w+_INTRA_ALGORITHM=(?!auto$).+"
    rf"|{VARIABLE_PREFIX}(?!I)\w+_COMPOSITION=(?!0$).+"
    rf"|{VARIABLE_PREFIX}(CH4_(\w+_)?)?COLL_SELECTION_TUNING_JSON_FILE(_GPU)?=.+"
    rf"|{VARIABLE_PREFIX}DEVICE_COLLECTIVES=(?!percoll$).+"
    rf"|{VARIABLE_PREFIX}(?!I)\w+_DEVICE_COLLECTIVE=(0|no|false|off)"
)
OVERRIDING_VARIABLES = ()  # those in parameter files, which MPICH does not have
# The most requests in flight in an all-to-all; read in each call, 32 by default.
THROTTLE_VARIABLE = "MPIR_CVAR_ALLTOALL_THROTTLE"
PROBE_REQUESTS = (4, 16)
PROBE_SEGMENT_BYTES = (32 * 1024, 128 * 1024)  # segment sizes that are probed
MAX_INT = 2**31 - 1  # parameters and bounds are ints in the library
RULES_FILE_VARIABLE = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"
# For libraries with a device layer.
DEVICE_RULES_FILE_VARIABLE = "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE"
CONTROL_VARIABLES = (  # all that the tuner uses
    DEVICE_COLLECTIVES,
    RULES_FILE_VARIABLE,
    DEVICE_RULES_FILE_VARIABLE,
    THROTTLE_VARIABLE,
    *(
        f"MPIR_CVAR_{collective.upper()}_{name}"
        for collective in ALGORITHMS
        for name in ("INTRA_ALGORITHM", "DEVICE_COLLECTIVE")
    ),
    *(
        f"MPIR_CVAR_{collective.upper()}_{name}"
        for collective, known in ALGORITHMS.items()
        for name in dict.fromkeys(
            variable for one in known.values() for variable in one.variables.values()
        )
    ),
)


def native_algorithm(collective: Collective, choice: AlgorithmChoice) -> NativeAlgorithm:
    """Return the library's algorithm for a choice other than the default.

    Raises InputError for an algorithm or parameter that MPICH does not have, and for a segment size
    that it cannot hold.
    """
    known = ALGORITHMS.get(collective)
    if choice.runner != LIBRARY:
        raise InputError(f"{collective} {choice}: MPICH's tuning file cannot express this")
    if known is None:
        raise InputError(f"MPICH rules for {collective} are not supported: drop these rules")
    if choice.algorithm not in known:
        raise InputError(
            f"MPICH has no {collective} algorithm {choice.algorithm!r}"
            f"{did_you_mean(choice.algorithm, known)}: it has {', '.join((DEFAULT, *known))}"
        )
    found = known[choice.algorithm]
    wanted = {"segment"} if found.segment_parameter else set()
    optional = {"requests"} if found.throttled else set()
    if set(choice.params) - optional != wanted:
        takes = "exactly the parameter segment" if wanted else "no parameters"
        raise InputError(
            f"{collective} {choice}: in MPICH this algorithm takes"
            f" {'no parameter but requests' if optional else takes}"
        )
    if not 0 <= choice.params.get("segment", 0) <= MAX_INT:
        raise InputError(
            f"{collective} {choice}: MPICH has segments of 0 (none) to {MAX_INT} bytes"
        )
    if not 0 <= choice.params.get("requests", 0) <= MAX_INT:
        raise InputError(f"{collective} {choice}: MPICH limits requests to 0 (none) to {MAX_INT}")
    return found


def guards(collective: Collective) -> tuple[Guard, ...]:
    """Return what must hold of control variables for algorithms of a collective to be forced.

    The device layer must not answer every collective.
    """
    return (
        Guard(f"MPIR_CVAR_{collective.upper()}_INTRA_ALGORITHM", AUTO_ALGORITHM),
        Guard(DEVICE_COLLECTIVES, ALL_DEVICE_COLLECTIVES, equals=False),
    )


def settings(collective: Collective, choice: AlgorithmChoice) -> dict[str, int | str]:
    """Return the control variables that force `choice`, none for the library's default.

    They act from the next call on. The device layer (shared memory and network offload of ch4)
    would answer before the forced algorithm, so it is switched off for this collective.
    """
    if choice.is_default:
        return {}
    stem = f"MPIR_CVAR_{collective.upper()}_"
    found = native_algorithm(collective, choice)
    values: dict[str, int | str] = {
        f"{stem}DEVICE_COLLECTIVE": 0,
        f"{stem}INTRA_ALGORITHM": found.name,
    }
    for parameter, value in leaf_parameters(found, choice).items():
        if parameter in found.variables:
            values[f"{stem}{found.variables[parameter]}"] = value
    if "requests" in choice.params:
        values[THROTTLE_VARIABLE] = choice.params["requests"]
    return values


def leaf_parameters(found: NativeAlgorithm, choice: AlgorithmChoice) -> dict[str, str | int]:
    """Return every parameter that a leaf gives the library's algorithm under `choice`."""
    segment = {found.segment_parameter: choice.params["segment"]} if found.segment_parameter else {}
    return {**found.fixed_parameters, **segment}


def preserves_operand_order(collective: Collective, choice: AlgorithmChoice) -> bool:
    """Return whether non-commutative operators keep their result under `choice`.

    Rabenseifner's algorithm aborts for an operator that is not built in, so it is not safe either.
    """
    restricted = () if choice.is_default else native_algorithm(collective, choice).restrictions
    return not set(restricted) - {NOT_IN_PLACE, POWER_OF_TWO}


def min_call_bytes(_choice: AlgorithmChoice) -> int:
    """Return 0: every algorithm of MPICH takes calls without data."""
    return 0


def is_expressible(collective: Collective, choice: AlgorithmChoice, _library: str = "") -> bool:
    """Return whether a rule can express this choice, as `native_algorithm` tells."""
    if choice.is_default:
        return True
    try:
        native_algorithm(collective, choice)
    except InputError:
        return False
    return True


def unsupported_reason(collective: Collective, choice: AlgorithmChoice, p: int) -> str:
    """Return why the library would not take a choice on `p` ranks; "" where it does."""
    found = ALGORITHMS.get(collective, {}).get(choice.algorithm)
    refused = p & (p - 1) and found and POWER_OF_TWO in found.restrictions
    reason = f"MPICH has {choice.algorithm} for powers of two, and not for {p} ranks"
    return reason if refused else ""


def substitution_reason(
    _collective: Collective, _choice: AlgorithmChoice, _p: int, _nbytes: int
) -> str:
    """Return ""; MPICH never silently runs another algorithm."""
    return ""


def effective_algorithm(
    _collective: Collective, choice: AlgorithmChoice, _p: int, _nbytes: int
) -> AlgorithmChoice:
    """Return `choice`, which MPICH runs as it is."""
    return choice


def candidates(
    collective: Collective,
    p: int,
    nbytes: int,
    segments: Sequence[int] = PROBE_SEGMENT_BYTES,
    radices: Sequence[int] = (),
) -> list[AlgorithmChoice]:
    """Return every algorithm worth timing for a call with 4-byte elements, the default first.

    segments    a segmented choice is offered only where the message is longer than its segment
    radices     ignored: no candidate of MPICH has a radix

    Raises InputError for collectives whose algorithms are not known here.
    """
    if collective not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise InputError(f"no candidates for {collective}: MPICH is probed with {known}")
    choices = [AlgorithmChoice()]
    for name, found in ALGORITHMS[collective].items():
        if unsupported_reason(collective, AlgorithmChoice(name), p):
            continue
        if "count>=pow2" in found.restrictions and nbytes // PROBE_ELEMENT_BYTES < 1 << (
            p.bit_length() - 1
        ):
            continue
        choices += _choices_of_algorithm(name, found, p, nbytes, segments)
    return choices


def _choices_of_algorithm(
    name: str, found: NativeAlgorithm, p: int, nbytes: int, segments: Sequence[int]
) -> Iterator[AlgorithmChoice]:
    if not found.segment_parameter:
        yield AlgorithmChoice(name)
        most = PROBE_REQUESTS if found.throttled else ()
        yield from (AlgorithmChoice(name, {"requests": n}) for n in most if n < p - 1)
    else:
        yield from (AlgorithmChoice(name, {"segment": n}) for n in segments if n < nbytes)


def startup_settings(_capabilities: Capabilities) -> Mapping[str, str]:
    """Return the settings that a program must be started with for algorithms to be forced."""
    return {}
