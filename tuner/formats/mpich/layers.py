"""The layers of MPICH that select algorithms of collectives, each with a file of its own.

The device layer (src/mpid/ch4) is asked first. Its compositions hand a call, or parts of it, to the
network module, which calls the MPIR layer (src/mpi/coll), or to the shared memory layer
(src/mpid/ch4/shm/posix), which calls the MPIR layer for what it does not do itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.mpi_libraries.mpich import DEVICE_RULES_FILE_VARIABLE, RULES_FILE_VARIABLE


@dataclass(frozen=True)
class Layer:
    """One layer.

    name            its name in messages
    variable        control variable that names its file
    leaf_template   how the leaves of a collective begin; `plain` is the collective as the rules
                    spell it (`bcast`), `capital` the same with a capital (`Bcast`)
    """

    name: str
    variable: str
    leaf_template: str

    @property
    def leaf_prefix(self) -> str:
        """Return the prefix of the leaves of this layer, which no other layer has."""
        return self.leaf_template.partition("{")[0]

    def has_algorithm(self, key: str, collective: str) -> bool:
        """Return whether a key names an algorithm of this layer for a collective."""
        prefix = self.leaf_template.format(plain=collective, capital=collective.capitalize())
        return key.startswith(prefix) and key != prefix


MPIR = Layer("MPIR layer", RULES_FILE_VARIABLE, "algorithm=MPIR_{capital}_")
DEVICE = Layer("device layer", DEVICE_RULES_FILE_VARIABLE, "composition=MPIDI_{capital}_")
SHARED_MEMORY = Layer(
    "shared memory layer",
    "MPIR_CVAR_CH4_POSIX_COLL_SELECTION_TUNING_JSON_FILE",
    "algorithm=MPIDI_POSIX_mpi_{plain}_",
)
LAYERS = (MPIR, DEVICE, SHARED_MEMORY)


def layer_of(key: str) -> Layer | None:
    """Return the layer of a leaf; None if it is of no known layer."""
    return next((layer for layer in LAYERS if key.startswith(layer.leaf_prefix)), None)
