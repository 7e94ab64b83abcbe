"""The start and supervision of ranks, on this computer or on several hosts."""

from tuner.launch.failures import CompletedRun
from tuner.launch.hosts import LOCAL_HOST, Hosts, hosts_from_environment
from tuner.launch.installation import Installation, find_interpreter, inspect_interpreter
from tuner.launch.launcher import Launcher, MultiHostLauncher, loaded_libmpi, physical_cores
from tuner.launch.package import PACKAGE_DIR
from tuner.launch.shapes import ShapeLauncher
from tuner.launch.template import TEMPLATES, LauncherTemplate

__all__ = [
    "LOCAL_HOST",
    "PACKAGE_DIR",
    "TEMPLATES",
    "CompletedRun",
    "Hosts",
    "Installation",
    "Launcher",
    "LauncherTemplate",
    "MultiHostLauncher",
    "ShapeLauncher",
    "find_interpreter",
    "hosts_from_environment",
    "inspect_interpreter",
    "loaded_libmpi",
    "physical_cores",
]
