"""A cluster emulated on this computer: network namespaces as hosts, and a switch of our own.

A topology goes in; out comes a network on which a real MPI library runs over several hosts, and of
which it is known exactly what its links carry. Linux and root are needed.
"""

from tuner.emulation.emulation import Emulation, emulation
from tuner.emulation.lab import Lab, Status, missing, prefix_for, take_down

__all__ = ["Emulation", "Lab", "Status", "emulation", "missing", "prefix_for", "take_down"]
