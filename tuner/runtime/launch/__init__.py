"""Starting ranks, on this computer or on many, and watching them to their end."""

from tuner.runtime.launch.failures import CompletedRun
from tuner.runtime.launch.hosts import LOCAL, Hosts, from_environment
from tuner.runtime.launch.launcher import (
    PACKAGE,
    Launcher,
    available_cores,
    physical_cores,
)
from tuner.runtime.launch.shapes import ShapeLauncher
from tuner.runtime.launch.spread import Spread
from tuner.runtime.launch.template import TEMPLATES, Template

__all__ = [
    "LOCAL",
    "PACKAGE",
    "TEMPLATES",
    "CompletedRun",
    "Hosts",
    "Launcher",
    "ShapeLauncher",
    "Spread",
    "Template",
    "available_cores",
    "from_environment",
    "physical_cores",
]
