"""Starting ranks, on this computer or on many, and watching them to their end."""

from tuner.launch.failures import CompletedRun
from tuner.launch.hosts import LOCAL, Hosts, from_environment
from tuner.launch.installation import Installation, installation_of
from tuner.launch.launcher import Launcher, available_cores, physical_cores
from tuner.launch.multi_host_launcher import Spread
from tuner.launch.package import PACKAGE
from tuner.launch.shapes import ShapeLauncher
from tuner.launch.template import TEMPLATES, Template

__all__ = [
    "LOCAL",
    "PACKAGE",
    "TEMPLATES",
    "CompletedRun",
    "Hosts",
    "Installation",
    "Launcher",
    "ShapeLauncher",
    "Spread",
    "Template",
    "available_cores",
    "from_environment",
    "installation_of",
    "physical_cores",
]
