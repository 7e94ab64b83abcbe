"""The algorithms that a library's default runs, told by the library of this computer."""

from __future__ import annotations

from functools import cache

from tuner.base.errors import InputError, ProbeError
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, RuleKey
from tuner.launch import Launcher, find_interpreter
from tuner.select.dataset import CallPoint, DefaultRuns, unknown_default
from tuner.topology import HOST
from tuner.validation.libraries import TUNED_LIBRARIES


@cache
def known_defaults(library: str) -> DefaultRuns:
    """Return what the default of a release, such as "openmpi 4.1.6", runs with buffers on the host.

    Nothing is known where this computer has no library that decides as that release does.
    """
    name = library.partition(" ")[0]
    if name not in TUNED_LIBRARIES:
        return unknown_default
    tuned = TUNED_LIBRARIES[name]
    try:
        launcher = Launcher.find(name, find_interpreter(name))
        installed = launcher.installation.library
        [*tuned.default_choices(launcher, RuleKey(next(iter(Collective)), 1, 2), [1])]
    except (InputError, ProbeError):
        return unknown_default

    @cache
    def runs(point: CallPoint) -> AlgorithmChoice | None:
        known = point.collective in tuple(Collective) and point.memory == HOST
        if not known or not tuned.decides_alike(library, installed, point.nodes):
            return None
        return next(iter(tuned.default_choices(launcher, point.key(), [point.nbytes])))

    return runs
