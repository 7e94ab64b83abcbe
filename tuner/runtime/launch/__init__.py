"""Starting ranks, on this computer or on many, and watching them to their end."""

from tuner.runtime.launch.failures import CompletedRun
from tuner.runtime.launch.hosts import LOCAL, Hosts, from_environment
from tuner.runtime.launch.installation import Installation, installation_of
from tuner.runtime.launch.launcher import (
    Launcher,
    available_cores,
    physical_cores,
)
from tuner.runtime.launch.package import PACKAGE
from tuner.runtime.launch.shapes import ShapeLauncher
from tuner.runtime.launch.spread import Spread
from tuner.runtime.launch.template import TEMPLATES, Template

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
