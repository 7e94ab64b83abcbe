"""Registry of all algorithms by name, and the construction of their schedules."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any
from weakref import WeakSet

from tuner.base.errors import InputError
from tuner.base.spelling import unknown_name
from tuner.core.collective import Collective
from tuner.core.schedule import Schedule
from tuner.core.verify import ScheduleProperties, verify

Builder = Callable[..., Schedule]
MAX_SEGMENTS = 1 << 20  # a longer pipeline is likely a mistake, and would fill the memory
MAX_VERIFIED_SLOTS = 1 << 17  # of all ranks, up to which schedules are verified when built
REQUIREMENTS: Mapping[str, str] = {  # what algorithms may require of the machine and the call
    "gpu": "buffers in GPU memory",
    "multicast": "a network that replicates messages",
    "switch_reduction": "network switches that reduce",
    "nvswitch_reduction": "NVSwitches that reduce",
    "one_node": "all ranks on one node",
    "joined_by_switches": "switches that reduce between all ranks",
    "two_levels": "several ranks on each of several nodes",
}
REQUIREMENT_HINTS: Mapping[str, str] = {  # how to meet a requirement
    "gpu": "ask for memory cuda, on a machine with GPUs",
    "one_node": "take one node, or another algorithm",
    "joined_by_switches": "take one node, or a network with `offers: [switch_reduction]` and"
    " several ranks on each node",
    "two_levels": "take more nodes and ranks per node, or another algorithm",
}


@dataclass(frozen=True)
class Algorithm:
    """An algorithm for one collective.

    params      parameter name -> default; `segment` is in bytes, 0 for unsegmented
    requires    keys of `REQUIREMENTS`, all of which must be met; empty for any machine
    cuts_whole  its segments are cut from the whole message, not from shares of it, as libraries do:
                full ones and a rest
    """

    collective: Collective
    name: str
    params: Mapping[str, int]
    builder: Builder
    requires: tuple[str, ...] = ()
    cuts_whole: bool = False

    @property
    def summary(self) -> str:
        return self._description[0]

    @property
    def formula(self) -> str:
        """Predicted seconds, or a bound of them ("at most").

        Its symbols are alpha (s), beta (s/byte), gamma (s/byte), m bytes, p ranks, and S segments
        (of m/S bytes).
        """
        return self._description[1]

    @property
    def source(self) -> str:
        """Where algorithm and formula are described."""
        return self._description[2]

    @cached_property
    def _description(self) -> tuple[str, str, str]:
        summary, cost, source = re.split(r"\n\n?(?:Cost|Source): ", _docstring(self.builder))
        return " ".join(summary.split()), " ".join(cost.split()), " ".join(source.split())


_REGISTRY: dict[tuple[Collective, str], Algorithm] = {}
_PROPERTIES: dict[tuple[object, ...], ScheduleProperties] = {}
_BUILT_SCHEDULES: WeakSet[Schedule] = WeakSet()


def algorithm(
    collective: Collective, name: str, requires: str = "", *, cuts_whole: bool = False
) -> Callable[[Builder], Builder]:
    """Return a decorator that registers a builder under its canonical name.

    requires    keys of `REQUIREMENTS`, separated by spaces
    cuts_whole  see `Algorithm`

    A builder takes p, root and nbytes if it needs them, and its parameters, which have defaults.
    Its docstring is the description: a summary, then a `Cost:` and a `Source:` line.
    """

    def register(builder: Builder) -> Builder:
        params = {
            key: value.default
            for key, value in inspect.signature(builder).parameters.items()
            if value.default is not inspect.Parameter.empty
        }
        needs = tuple(requires.split())
        _REGISTRY[collective, name] = Algorithm(
            collective, name, params, builder, needs, cuts_whole
        )
        return builder

    return register


def register_ragged() -> None:
    """Register algorithms of collectives for those that differ in their lengths of blocks.

    These are the ones that any machine can run. Their schedules describe calls whose blocks are
    equally long.
    """
    for ragged in Collective:
        for name in algorithm_names(ragged.even) if ragged.is_ragged else ():
            _REGISTRY[ragged, name] = replace(describe(ragged.even, name), collective=ragged)


def _docstring(builder: Builder) -> str:
    """Return the docstring of a builder, from its source where `python -OO` has removed it."""
    if text := inspect.getdoc(builder):
        return text
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(builder))).body
    assert isinstance(function, ast.FunctionDef)
    return ast.get_docstring(function) or ""


def algorithm_names(collective: Collective, capabilities: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the algorithms whose requirements are met by `capabilities`."""
    return tuple(
        name
        for (owner, name), entry in _REGISTRY.items()
        if owner is collective and set(entry.requires) <= set(capabilities)
    )


def available_capabilities(
    network_capabilities: Collection[str], on_gpus: bool, nodes: int, ppn: int
) -> frozenset[str]:
    """Return the requirements that are met for a call on a machine.

    network_capabilities    what the machine's network offers
    on_gpus                 whether the buffers are in GPU memory
    nodes, ppn              number of nodes, and of ranks on each
    """
    two_levels = min(nodes, ppn) > 1
    of_the_call = {
        "gpu": on_gpus,
        "one_node": nodes == 1,
        "two_levels": two_levels,
        "joined_by_switches": nodes == 1
        or (two_levels and "switch_reduction" in network_capabilities),
    }
    return frozenset(network_capabilities) | {need for need, there in of_the_call.items() if there}


def check_requirements(
    collective: Collective, name: str, capabilities: Collection[str], machine: str
) -> None:
    """Raise InputError for an unknown algorithm, and for one whose requirements are not met.

    capabilities    requirements that are met
    machine         name of the machine, for the message
    """
    for need in describe(collective, name).requires:
        if need not in capabilities:
            remedy = REQUIREMENT_HINTS.get(
                need, f"where {machine} has that, say `offers: [{need}]` in its topology file"
            )
            raise InputError(f"{collective} {name} needs {REQUIREMENTS[need]}: {remedy}")


def describe(collective: Collective, name: str) -> Algorithm:
    """Return an algorithm by name; raise InputError with the known names for an unknown one."""
    try:
        return _REGISTRY[collective, name]
    except KeyError:
        known = algorithm_names(collective, REQUIREMENTS)
        raise InputError(unknown_name(f"{collective} algorithm", name, known)) from None


def build(
    collective: Collective,
    name: str,
    p: int,
    *,
    root: int = 0,
    nbytes: int = 0,
    params: Mapping[str, int] | None = None,
    verify_schedule: bool = True,
) -> Schedule:
    """Return the schedule of an algorithm, verified if it has at most `MAX_VERIFIED_SLOTS` slots.

    A slot is a place for a chunk on one rank, in the user's buffer or in scratch.

    nbytes              message size in bytes
    params              parameters that differ from the defaults
    verify_schedule     False for schedules that are made by the thousand only to compute their cost

    Larger schedules come from the same builders and take too long to verify at every build. Raises
    InputError for an unknown algorithm or parameter, p < 1, a root outside 0..p-1 or negative
    values; ScheduleError when verification fails.
    """
    entry = describe(collective, name)
    if p < 1 or not 0 <= root < p or nbytes < 0:
        raise InputError(
            f"{collective} needs p >= 1, a root below p and no negative size,"
            f" not p={p}, root={root}, {nbytes} bytes"
        )
    chosen = _resolve_params(entry, params or {})
    call = {"root": root, "nbytes": nbytes}
    needed = {key: call[key] for key in call if key in _parameter_names(entry.builder)}
    made = entry.builder(p, **needed, **chosen)
    made = replace(made, collective=collective, algorithm=name, params=chosen, root=root)
    if entry.cuts_whole and made.n_chunks > 1:
        made = replace(made, segment_bytes=chosen["segment"])
    _BUILT_SCHEDULES.add(made)
    if verify_schedule and made.p * made.slots <= MAX_VERIFIED_SLOTS:
        schedule_properties(made)
    return made


@cache
def _parameter_names(builder: Callable[..., Schedule]) -> frozenset[str]:
    return frozenset(inspect.signature(builder).parameters)


def _resolve_params(entry: Algorithm, params: Mapping[str, int]) -> dict[str, Any]:
    unknown = set(params) - set(entry.params)
    if unknown:
        raise InputError(
            f"{entry.collective} {entry.name} has no parameter {sorted(unknown)[0]!r};"
            f" it has: {', '.join(entry.params) or 'none'}"
        )
    for key, value in params.items():
        least = min({"segment": 0, "radix": 2}.get(key, 1), entry.params[key])
        if value < least:
            raise InputError(
                f"{entry.collective} {entry.name}: {key} must be at least {least}, not {value}"
            )
    return {**entry.params, **params}


def schedule_properties(made: Schedule) -> ScheduleProperties:
    """Return the properties of a schedule; each shape that `build` made is verified only once."""
    if made not in _BUILT_SCHEDULES:
        return verify(made)
    shape = (
        made.collective,
        made.algorithm,
        made.p,
        made.root,
        made.n_chunks,
        *sorted(made.params.items()),
    )
    if shape not in _PROPERTIES:
        _PROPERTIES[shape] = verify(made)
    return _PROPERTIES[shape]


def is_segmented(collective: Collective, name: str, params: Mapping[str, int]) -> bool:
    """Return whether messages are segmented; if not, one schedule serves all message sizes."""
    return {**describe(collective, name).params, **params}.get("segment", 0) > 0


def count_segments(nbytes: int, segment_bytes: int) -> int:
    """Return how many segments of `segment_bytes` bytes a message has; 0 means unsegmented.

    Raises InputError for more than `MAX_SEGMENTS`.
    """
    number = 1 if segment_bytes == 0 else max(1, -(-nbytes // segment_bytes))
    if number > MAX_SEGMENTS:
        raise InputError(
            f"a segment of {segment_bytes} bytes cuts {nbytes} bytes into {number} pieces:"
            f" use one of at least {-(-nbytes // MAX_SEGMENTS)} bytes"
        )
    return number
