"""Two launches that take turns, on the hosts of a batch job: `paired.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from tuner.core.collective import Collective
from tuner.launch import Launcher, ShapeLauncher
from tuner.launch.hosts import from_environment
from tuner.launch.template import usual_template
from tuner.validation.timing import Side, TimedCall, build, time_rounds


def main(folder: Path) -> None:
    hosts = from_environment()
    launcher = Launcher.find("openmpi", Path(sys.executable), usual_template("openmpi"))
    call = TimedCall(Collective.ALLREDUCE, len(hosts.names), 2, 4000)
    times = time_rounds(
        ShapeLauncher(launcher, hosts),
        build(launcher.compiler, folder),
        [call],
        Side(),
        library=launcher.version(),
        rounds=1,
        seconds=0.01,
        directory=folder,
    )
    print(f"{len(times.default)} and {len(times.tuned)} conditions were timed")


main(Path(sys.argv[1]))
