"""What MPICH calls each algorithm, and what it can do with it.

Names and restrictions: src/mpi/coll/coll_algorithms.txt of MPICH 5.0. The library has more
algorithms than have a canonical name; those stay with the library's own decision. Algorithms are
forced by name, because the numbers behind the names change between versions, and not every version
has all of them (`tuner.mpi_libraries.capabilities`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.core.table import DEFAULT, LIBRARY, Choice
from tuner.mpi_libraries.capabilities import Capabilities


@dataclass(frozen=True)
class Native:
    """One algorithm of the library.

    name        in MPIR_CVAR_<COLLECTIVE>_INTRA_ALGORITHM
    fixed       parameters that make it the canonical algorithm; a leaf must give every parameter
    segment     the parameter that takes the segment size, "" when it has none
    guards      conditions under which the library may run it at all
    """

    name: str
    fixed: Mapping[str, str | int] = field(default_factory=dict)
    segment: str = ""
    guards: tuple[str, ...] = ()


_PIPELINE: Mapping[str, str | int] = {
    "tree_type": "kary",
    "is_non_blocking": 1,
    "recv_pre_posted": 0,
}
AUTOMATIC = 0  # the enumeration's value for the library's own decision
ALGORITHMS = {
    Collective.BCAST: {
        "pipeline": Native("pipelined_tree", {**_PIPELINE, "k": 1}, "chunk_size"),
        "binary": Native("pipelined_tree", {**_PIPELINE, "k": 2}, "chunk_size"),
        "binomial": Native("binomial"),
        "scatter_allgather": Native("scatter_recursive_doubling_allgather"),
        "scatter_allgather_ring": Native("scatter_ring_allgather"),
    },
    Collective.ALLREDUCE: {
        "recursive_doubling": Native("recursive_doubling"),
        "ring": Native("ring", guards=("is_commutative=yes",)),
        "rabenseifner": Native(
            "reduce_scatter_allgather", guards=("is_op_built_in=yes", "count>=pow2")
        ),
    },
}
# The layer below (ch4: shared memory, network offload) answers a collective first where its own
# variable MPIR_CVAR_<COLLECTIVE>_DEVICE_COLLECTIVE is 1, and every collective where this one is 0.
DEVICE_COLLECTIVES, ALL_BY_DEVICE = "MPIR_CVAR_DEVICE_COLLECTIVES", 0
PREFIX = "MPI(R_CVAR|R_PARAM|CH)_"  # under any of which the library reads a control variable
# NAME=VALUE of those that decide before the library does: a forced algorithm or composition, a file
# of rules, and which collectives the device layer answers.
DECIDING = (
    rf"{PREFIX}(?!I)\w+_INTRA_ALGORITHM=(?!auto$).+"  # I: of a collective that does not block
    rf"|{PREFIX}(?!I)\w+_COMPOSITION=(?!0$).+"
    rf"|{PREFIX}(CH4_(\w+_)?)?COLL_SELECTION_TUNING_JSON_FILE(_GPU)?=.+"
    rf"|{PREFIX}DEVICE_COLLECTIVES=(?!percoll$).+"
    rf"|{PREFIX}(?!I)\w+_DEVICE_COLLECTIVE=(0|no|false|off)"
)
DECIDING_VARIABLES = ()  # which parameter files may hold: there are none
SEGMENTS = (32 * 1024, 128 * 1024)  # bytes offered to a probe
ITEM = 4  # bytes of the elements that a probe sends
LARGEST = 2**31 - 1  # parameters and bounds are ints in the library
_VARIABLES = {  # MPIR_CVAR_BCAST_<name> of each parameter, with its default
    "k": ("TREE_KVAL", 2),
    "is_non_blocking": ("IS_NON_BLOCKING", 1),
    "chunk_size": ("TREE_PIPELINE_CHUNK_SIZE", 8192),
    "recv_pre_posted": ("RECV_PRE_POST", 0),
}
FILE = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"  # of rules
DEVICE_FILE = "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE"  # of the device layer's, where it is
VARIABLES = (  # that matter here
    DEVICE_COLLECTIVES,
    FILE,
    DEVICE_FILE,
    *(
        f"MPIR_CVAR_{collective.upper()}_{name}"
        for collective in ALGORITHMS
        for name in ("INTRA_ALGORITHM", "DEVICE_COLLECTIVE")
    ),
    *(f"MPIR_CVAR_{Collective.BCAST.upper()}_{name}" for name, _ in _VARIABLES.values()),
)


def native(collective: Collective, choice: Choice) -> Native:
    """The library's algorithm for a choice other than the default.

    Raises InputError for an algorithm or parameter that MPICH does not have, and for a segment that
    it would read as another one.
    """
    known = ALGORITHMS.get(collective)
    if choice.via != LIBRARY:
        raise InputError(f"{collective} {choice}: MPICH's own rules cannot say that")
    if known is None:
        raise InputError(f"MPICH rules for {collective} are not supported: drop these rules")
    if choice.algorithm not in known:
        raise InputError(
            f"MPICH has no {collective} algorithm {choice.algorithm!r}:"
            f" it has {', '.join((DEFAULT, *known))}"
        )
    found = known[choice.algorithm]
    wanted = {"segment"} if found.segment else set()
    if set(choice.params) != wanted:
        raise InputError(
            f"{collective} {choice}: in MPICH this algorithm takes"
            f" {'exactly the parameter segment' if wanted else 'no parameters'}"
        )
    if not 0 <= choice.params.get("segment", 0) <= LARGEST:
        raise InputError(
            f"{collective} {choice}: MPICH has segments of 0 (none) to {LARGEST} bytes"
        )
    return found


def decided_elsewhere(collective: Collective, read: Callable[[str], int | str]) -> str:
    """Return why algorithms of a collective cannot be forced here; "" where they can.

    read    returns the present value of a control variable
    """
    name = f"MPIR_CVAR_{collective.upper()}_INTRA_ALGORITHM"
    if read(name) != AUTOMATIC:
        return f"{name} is already set"
    if read(DEVICE_COLLECTIVES) == ALL_BY_DEVICE:
        return f"{DEVICE_COLLECTIVES} is set to 'all', so the device layer answers every collective"
    return ""


def settings(collective: Collective, choice: Choice) -> dict[str, int | str]:
    """Return the control variables that force `choice`, none for the library's default.

    They act from the next call on. The device layer (shared memory and network offload of ch4)
    would answer before the forced algorithm, so it is switched off for this collective.
    """
    if choice.is_default:
        return {}
    stem = f"MPIR_CVAR_{collective.upper()}_"
    found = native(collective, choice)
    values: dict[str, int | str] = {
        f"{stem}DEVICE_COLLECTIVE": 0,
        f"{stem}INTRA_ALGORITHM": found.name,
    }
    for parameter, value in leaf_parameters(found, choice).items():
        if parameter in _VARIABLES:
            values[f"{stem}{_VARIABLES[parameter][0]}"] = value
    return values


def leaf_parameters(found: Native, choice: Choice) -> dict[str, str | int]:
    """Every parameter of the library's algorithm under `choice`."""
    segment = {found.segment: choice.params["segment"]} if found.segment else {}
    return {**found.fixed, **segment}


def order_safe(collective: Collective, choice: Choice) -> bool:
    """Whether non-commutative operators keep their result under `choice`.

    Rabenseifner's algorithm aborts for an operator that is not built in, so it is not safe either.
    """
    return choice.is_default or not native(collective, choice).guards


def in_rules(collective: Collective, choice: Choice) -> bool:
    """Whether a rule can say it: whatever the library runs itself, as `native` knows it."""
    if choice.is_default:
        return True
    try:
        native(collective, choice)
    except InputError:
        return False
    return True


def redirected(_collective: Collective, _choice: Choice, _p: int, _nbytes: int) -> str:
    """Why the library would silently run another algorithm: never."""
    return ""


def executed(_collective: Collective, choice: Choice, _p: int, _nbytes: int) -> Choice:
    """What really runs where `choice` is asked for: just that."""
    return choice


def candidates(
    collective: Collective,
    p: int,
    nbytes: int,
    segments: Sequence[int] = SEGMENTS,
    radices: Sequence[int] = (),
) -> list[Choice]:
    """Every algorithm worth timing for a call with 4-byte elements, the default first.

    What MPICH offers has no `radices`. Segmented arms only where the message is longer than a
    segment. Raises InputError for other than bcast and allreduce.
    """
    if collective not in ALGORITHMS:
        known = " and ".join(ALGORITHMS)
        raise InputError(f"no candidates for {collective}: MPICH is probed with {known}")
    arms = [Choice()]
    for name, found in ALGORITHMS[collective].items():
        if "count>=pow2" in found.guards and nbytes // ITEM < 1 << (p.bit_length() - 1):
            continue
        arms += _arms(name, found, nbytes, segments)
    return arms


def _arms(name: str, found: Native, nbytes: int, segments: Sequence[int]) -> Iterator[Choice]:
    if not found.segment:
        yield Choice(name)
    else:
        yield from (Choice(name, {"segment": n}) for n in segments if n < nbytes)


def at_start(_capabilities: Capabilities) -> Mapping[str, str]:
    """Return the settings that a program must be started with for algorithms to be forced."""
    return {}
