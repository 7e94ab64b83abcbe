"""The presets of Intel MPI for each collective, which have numbers but no names.

`preset_5` of a table is number 5 of I_MPI_ADJUST_<COLLECTIVE>. Numbers: the largest that Intel MPI
2021.18 takes. What a number stands for changes between releases and is not published.

Non-commutative operators keep their result under every preset of allreduce and reduce: measured
with 2021.18 on 3 and 4 ranks, 256 bytes to 480 kB.
"""

from __future__ import annotations

import re

from tuner.base.errors import InputError, shortened_repr
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, AlgorithmChoice

MAX_PRESETS = {  # collective -> its largest preset
    Collective.ALLGATHER: 6,
    Collective.ALLREDUCE: 32,
    Collective.ALLTOALL: 18,
    Collective.BARRIER: 11,
    Collective.BCAST: 22,
    Collective.GATHER: 5,
    Collective.REDUCE: 19,
    Collective.SCATTER: 5,
}
PER_RANK_COLLECTIVES = tuple(one for one in MAX_PRESETS if one.moves_blocks)
_NAME = re.compile(r"preset_(0|[1-9]\d{0,2})")


def preset_of(collective: Collective, choice: AlgorithmChoice) -> int:
    """Return the preset of a choice; raises InputError for one that Intel MPI does not have."""
    largest = MAX_PRESETS.get(collective)
    match = _NAME.fullmatch(choice.algorithm)
    if largest is None:
        raise InputError(f"Intel MPI rules for {collective} are not supported: drop these rules")
    if choice.runner != LIBRARY or match is None or int(match[1]) > largest:
        raise InputError(
            f"Intel MPI has no {collective} {shortened_repr(choice.algorithm)}: it has preset_0 to"
            f" preset_{largest}"
        )
    if choice.params:
        raise InputError(f"{collective} {choice}: a preset of Intel MPI takes no parameters")
    return int(match[1])


def choice_of(preset: int) -> AlgorithmChoice:
    """Return the choice that `preset_of` turns into this number."""
    return AlgorithmChoice(f"preset_{preset}")
