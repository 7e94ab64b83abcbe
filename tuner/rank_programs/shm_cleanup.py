"""Remove what ranks that are killed would leave behind on their host."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

MAPS_FILE = Path("/proc/self/maps")  # proc_pid_maps(5); the name of a deleted file has a suffix
MPICH_SHM_PREFIX = "/dev/shm/mpich_shm_"


def unlink_shared_memory() -> None:
    """Unlink the names of the shared memory that MPICH 5 gave this rank at its start.

    MPICH does so itself at the end, which ranks that are killed or abort never reach: each such
    launch would leave megabytes of memory behind. Mapped memory stays until its ranks are gone, and
    no rank looks for it by name once all ranks of the host have begun: call this after the first
    collective of all ranks. It does nothing where another library, or another system, uses other
    names.
    """
    with suppress(OSError):
        lines = MAPS_FILE.read_text(encoding="utf-8", errors="replace").splitlines()
        for name in {line.split()[-1] for line in lines}:
            if name.startswith(MPICH_SHM_PREFIX):
                Path(name).unlink(missing_ok=True)
