"""All checks of a diagnosis; those that wait for programs run concurrently."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tuner import mpi_libraries
from tuner.diagnosis import launch_checks, tools
from tuner.diagnosis.findings import CheckResult, Diagnosis, Finding, make_finding
from tuner.diagnosis.library import check_library
from tuner.formats.registry import FORMATS
from tuner.launch import LOCAL_HOST, Hosts, Installation, LauncherTemplate
from tuner.launch.executables import find_mpicc

EXAMPLE_CALL = (8, 1 << 20)  # ranks and bytes for which every algorithm is a candidate


def diagnose(
    python: Path, hosts: Hosts = LOCAL_HOST, template: LauncherTemplate | None = None
) -> Diagnosis:
    """Examine the MPI of an interpreter here, and on `hosts` where these are other hosts.

    template    how ranks are started on them; None: as the library's own launcher does

    No ranks are started where the library cannot be used as it is. Takes about a second on a
    healthy machine; what hangs is given up after 20.
    """
    with ThreadPoolExecutor(4) as pool:
        place, loaded = check_library(python)
        if place is None:
            rest = [pool.submit(tools.check_compilers, None), pool.submit(tools.check_scheduler)]
            return Diagnosis.combine([loaded, *(one.result() for one in rest)])
        path, launcher = launch_checks.check_launcher(
            place, is_required=hosts.is_local or template is None
        )
        near = [path.parent] if path else []
        sound = not any(problem.fatal for problem in loaded.problems)
        able = sound and (path is not None or not hosts.is_local)
        trials = [pool.submit(check_ranks, place, hosts, template)] if able else []
        waiting = [
            pool.submit(tools.check_transports, place, near),
            *trials,
            pool.submit(tools.check_compilers, path and find_mpicc(path)),
            pool.submit(tools.check_scheduler),
        ]
        parts = [loaded, launcher, *(one.result() for one in waiting)]
    whole = Diagnosis.combine(parts)
    return Diagnosis((*whole.findings, *_usable_commands(place, whole)), whole.problems)


def check_ranks(
    installation: Installation, hosts: Hosts, template: LauncherTemplate | None
) -> CheckResult:
    """Return the result of starting ranks here, or on the hosts."""
    return (
        launch_checks.check_local_ranks(installation)
        if hosts.is_local
        else launch_checks.check_hosts(installation, hosts, template)
    )


def _usable_commands(installation: Installation, diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """Return a finding with the commands that work with this MPI."""
    if not diagnosis.is_usable:
        return (
            make_finding("works", "nothing can be measured before the problems below are solved"),
        )
    candidates = mpi_libraries.available_candidates(installation.library, installation.capabilities)
    known = mpi_libraries.library_module(installation.library)
    product = installation.identity.product
    calls = [one for one in known.ALGORITHMS if len(candidates(one, *EXAMPLE_CALL)) > 1]
    formats = " or ".join(_readable_formats(product.name, installation))
    return (
        make_finding(
            "works",
            f"probe, tune, tune() and tuner.run: {', '.join(calls) or 'no collective'}",
            f"table export --format {formats}" if formats else "",
        ),
    )


def _readable_formats(library: str, installation: Installation) -> list[str]:
    """Return the names of the formats whose files this library reads."""
    formats = [form for form in FORMATS.values() if library in form.libraries]
    return sorted(form.name for form in formats if form.is_read_by(installation))
