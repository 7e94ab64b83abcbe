"""All checks, those that wait for programs side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tuner import mpi_libraries
from tuner.diagnosis import launch, tools
from tuner.diagnosis.findings import Diagnosis, Examined, Finding, found
from tuner.diagnosis.library import load
from tuner.formats.openmpi import emitter, han
from tuner.formats.registry import FORMATS
from tuner.launch import LOCAL, Hosts, Installation, Template
from tuner.launch.executables import compiler_of
from tuner.mpi_libraries.mpich import DEVICE_FILE

READERS: Mapping[str, Callable[[Installation], bool]] = {  # whether a library reads a format
    "openmpi": lambda place: _major(place) in emitter.READERS,
    "openmpi-json": lambda place: _major(place) not in emitter.READERS,
    "openmpi-han": lambda place: _major(place) in han.READERS,
    "mpich-device": lambda place: DEVICE_FILE in place.capabilities.variables,
}
EXAMPLE = (8, 1 << 20)  # ranks and bytes of a call for which every algorithm is a candidate


def diagnose(python: Path, there: Hosts = LOCAL, template: Template | None = None) -> Diagnosis:
    """Examine the MPI of an interpreter here, and on `there` where these are other hosts.

    template    how ranks are started on them; None: as the library's own launcher does

    No ranks are started where the library cannot be used as it is. Takes about a second of a
    healthy machine; what hangs is given up after 20.
    """
    with ThreadPoolExecutor(4) as pool:
        place, loaded = load(python)
        if place is None:
            rest = [pool.submit(tools.compilers, None), pool.submit(tools.scheduler)]
            return Diagnosis.of([loaded, *(one.result() for one in rest)])
        path, launcher = launch.launcher(place, needed=there.local or template is None)
        near = [path.parent] if path else []
        sound = not any(problem.fatal for problem in loaded.problems)
        able = sound and (path is not None or not there.local)
        trials = [pool.submit(_trial, place, there, template)] if able else []
        waiting = [
            pool.submit(tools.transports, place, near),
            *trials,
            pool.submit(tools.compilers, path and compiler_of(path)),
            pool.submit(tools.scheduler),
        ]
        parts = [loaded, launcher, *(one.result() for one in waiting)]
    whole = Diagnosis.of(parts)
    return Diagnosis((*whole.findings, *_abilities(place, whole)), whole.problems)


def _trial(place: Installation, there: Hosts, template: Template | None) -> Examined:
    return launch.trial(place) if there.local else launch.hosts(place, there, template)


def _abilities(place: Installation, whole: Diagnosis) -> tuple[Finding, ...]:
    """Say which commands work with this MPI."""
    if not whole.able:
        return (found("works", "nothing can be measured before the problems below are solved"),)
    candidates = mpi_libraries.offered(place.library, place.capabilities)
    known, product = mpi_libraries.named(place.library), place.identity.product
    calls = [one for one in known.ALGORITHMS if len(candidates(one, *EXAMPLE)) > 1]
    formats = " or ".join(_formats(product.name, place))
    return (
        found(
            "works",
            f"probe, tune, tune() and tuner.run: {', '.join(calls) or 'no collective'}",
            f"table export --to {formats}" if formats else "",
        ),
    )


def _formats(library: str, place: Installation) -> list[str]:
    """Return the names of the formats whose files this library reads."""
    formats = [form.name for form in FORMATS.values() if library in form.libraries]
    return [name for name in formats if name not in READERS or READERS[name](place)]


def _major(place: Installation) -> str:
    return place.identity.version.partition(".")[0]
