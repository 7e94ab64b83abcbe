"""GPU generations: what changes in a machine when its GPUs are replaced."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.base.errors import InputError, quoted
from tuner.machines.provenance import Reduction, Sourced, giga, micros

NCCL = "NCCL 2.30.7, src/graph/topo.h and tuning.cc: effective rate of a link"
PASSES = 3  # dst = dst op arriving reads two values and writes one
REACHED = 0.8  # share of the memory's nominal rate that such a kernel reaches
LAUNCH = micros(
    3.0, "null kernels on recent hardware, NVIDIA developer forum, thread 233645", "published"
)
OLD_LAUNCH = micros(5.0, "PCIe 3 hosts are slower than the 3 us of recent hardware", "assumed")


@dataclass(frozen=True)
class GPU:
    """One product. Rates per direction, as messages see them (not the nominal ones).

    bricks      NVLink connections of one GPU; 0 without NVLink
    brick       rate of one of them
    pcie        rate of its PCIe connection
    memory      nominal rate of its memory
    launch      a kernel, launch to completion
    """

    product: str
    bricks: int
    brick: Sourced
    pcie: Sourced
    memory: Sourced
    launch: Sourced

    @property
    def reduction(self) -> Reduction:
        """A kernel that folds arriving bytes in."""
        rate = Sourced(
            self.memory.value * REACHED / PASSES,
            "B/s",
            f"{PASSES} passes over memory at {REACHED:.0%} of its nominal rate",
            "computed",
        )
        return Reduction(self.launch, rate)


def _pcie(generation: int, rate: float, source: str, certainty: str) -> Sourced:
    return giga(rate, f"PCIe {generation}.0 x16: {source}", certainty)


_PCIE3 = _pcie(3, 12.0, "NCCL 2.30.7, src/graph/topo.h", "verified")
_DATASHEET = "NVIDIA data sheet"
_TABLE = "product comparison, acecloud.ai, nvidia-b200-vs-h200-h100-a100"

GPUS = {
    gpu.product: gpu
    for gpu in (
        GPU(
            "K80",
            0,
            giga(0.0, "no NVLink before Pascal", "published"),
            _PCIE3,
            giga(240.0, f"{_DATASHEET}: 480 GB/s of a card with two GPUs", "remembered"),
            OLD_LAUNCH,
        ),
        GPU(
            "P100",
            4,
            giga(18.41, "adjacent pair on DGX-1P, Tartan benchmark", "verified"),
            _PCIE3,
            giga(732.0, _DATASHEET, "remembered"),
            OLD_LAUNCH,
        ),
        GPU(
            "V100",
            6,
            giga(21.7, "46 us per MB on a single link of DGX-1V, TACCL", "verified"),
            _PCIE3,
            giga(900.0, _DATASHEET, "remembered"),
            OLD_LAUNCH,
        ),
        GPU(
            "A100",
            12,
            giga(273.8 / 12, "ABCI peer to peer: median 273.8 GB/s of 12", "computed"),
            _pcie(4, 26.3, "host to device, Azure guide", "published"),
            giga(1555.0, f"{_DATASHEET}, 40 GB; 2039 with 80 GB", "remembered"),
            LAUNCH,
        ),
        GPU(
            "H100",
            18,
            giga(20.6, NCCL, "verified"),
            _pcie(5, 51.0, "host to device, Azure guide", "published"),
            giga(3350.0, _TABLE, "published"),
            LAUNCH,
        ),
        GPU(
            "H200",
            18,
            giga(20.6, NCCL, "verified"),
            _pcie(5, 52.0, "host to device, Azure guide", "published"),
            giga(4800.0, _TABLE, "published"),
            LAUNCH,
        ),
        GPU(
            "B200",
            18,
            giga(40.1, NCCL, "verified"),
            _pcie(5, 52.0, "as H200 on the same generation of PCIe", "assumed"),
            giga(8000.0, _TABLE, "published"),
            LAUNCH,
        ),
    )
}


def gpu(product: str) -> GPU:
    """Raises InputError for a product that is not known."""
    if product not in GPUS:
        raise InputError(f"there is no GPU {quoted(product)}; known: {', '.join(GPUS)}")
    return GPUS[product]
