"""What ranks that die would leave behind on their host."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

MAPS_FILE = Path(
    "/proc/self/maps"
)  # proc_pid_maps(5): the name of a file that is gone ends otherwise
MPICH_SHM_PREFIX = "/dev/shm/mpich_shm_"


def unlink_shared_memory() -> None:
    """Take the names from the shared memory that MPICH 5 gave this rank when it began.

    MPICH does so itself at the end, which ranks that are ended or abort never reach: each such
    launch would leave megabytes of memory behind. What is mapped stays until its ranks are gone,
    and nobody looks for it by name once all ranks of the host have begun: call this after the first
    collective of all ranks. Nothing where another library, or another system, names it otherwise.
    """
    with suppress(OSError):
        lines = MAPS_FILE.read_text(encoding="utf-8", errors="replace").splitlines()
        for name in {line.split()[-1] for line in lines}:
            if name.startswith(MPICH_SHM_PREFIX):
                Path(name).unlink(missing_ok=True)
