"""Print what the default decides on HOSTS hosts with PPN ranks, as measurements record it."""

import json
import sys
import tempfile
from pathlib import Path

from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, PLACEMENTS
from tuner.launch import Hosts, Launcher, LauncherTemplate, MultiHostLauncher
from tuner.mpi_libraries.default_algorithms import default_algorithms_record
from tuner.validation.openmpi_default_algorithms import find_default_algorithms

MOST = 1 << 20


def main(hosts: str, ppn: int) -> None:
    """Ask for bcast and allreduce on all hosts, with one rank each, and with `ppn` of each kind."""
    names = tuple(hosts.split(","))
    launcher = Launcher.find("openmpi", Path(sys.executable), LauncherTemplate.parse("openmpi"))
    calls = [
        (name, len(names), each, placement)
        for name in (Collective.BCAST, Collective.ALLREDUCE)
        for each, placement in ((1, BLOCK), *((ppn, kind) for kind in PLACEMENTS))
    ]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        found = find_default_algorithms(
            MultiHostLauncher(launcher, Hosts(names), ppn), calls, MOST, Path(place)
        )
    print(json.dumps(default_algorithms_record(found)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
