"""What the default decides on hosts of the lab, as a header of measurements keeps it: HOSTS PPN."""

import json
import sys
import tempfile
from pathlib import Path

from tuner.core.collective import Collective
from tuner.core.path_classes import CONSECUTIVE, PLACEMENTS
from tuner.launch import Hosts, Launcher, Spread, Template
from tuner.mpi_libraries.default_algorithms import in_provenance
from tuner.validation.openmpi_default_algorithms import find

MOST = 1 << 20


def main(hosts: str, ppn: int) -> None:
    """Ask for bcast and allreduce on all hosts, with one rank each, and with `ppn` of each kind."""
    names = tuple(hosts.split(","))
    launcher = Launcher.find("openmpi", Path(sys.executable), Template.parse("openmpi"))
    calls = [
        (name, len(names), each, placement)
        for name in (Collective.BCAST, Collective.ALLREDUCE)
        for each, placement in ((1, CONSECUTIVE), *((ppn, kind) for kind in PLACEMENTS))
    ]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        found = find(Spread(launcher, Hosts(names), ppn), calls, MOST, Path(place))
    print(json.dumps(in_provenance(found)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
