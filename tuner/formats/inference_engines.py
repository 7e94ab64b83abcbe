"""Tell vLLM and SGLang up to which size they run all-reduces before they call NCCL.

A cut-off is the size up to which the engine's own kernels run. It is the one with the smallest
product of times over all sizes that were measured of both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.base.spelling import unknown_name
from tuner.importers.backend_times import LARGEST_OWN_BYTES, BackendTime
from tuner.topology.readers.gpu_products import COMPUTE_CAPABILITIES, compute_capability

NCCL, VLLM, SGLANG = "nccl", "vllm", "sglang"
NOISE = 0.05  # smaller gains do not lower a cut-off: times of two launches differ as much
KERNEL_BYTES = 16  # the kernels of vLLM take multiples of these (should_custom_ar)
# Read by SGLang's custom_all_reduce_v2.py; in KiB, and 16 MiB where it is not set (environ.py).
SGLANG_VARIABLE = "SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB"
DISABLING_OPTION = "--disable-custom-all-reduce"  # of both engines
VLLM_MODULE = "tuner_vllm_cutoffs"
# Compute capabilities for which vLLM has limits (all_reduce_utils.py at 00d618a); elsewhere it runs
# its own kernels below 8 MiB.
VLLM_LIMITED = (90, 100, 103)


@dataclass(frozen=True)
class CutOff:
    """The size at which an engine changes from its own kernels to NCCL, on some GPUs of a node.

    nbytes      largest size of its own kernels, 0 where NCCL is to run all calls; None where these
                are as fast as NCCL up to the largest size that was measured
    largest     the largest size that was measured
    gain        by how much NCCL is faster above the cut-off, at most: 0.25 for 4 instead of 5 us
    """

    gpu: str
    engine: str
    version: str
    gpus: int
    nbytes: int | None
    largest: int
    gain: float = 0.0

    def runs_own(self, nbytes: int) -> bool:
        """Return whether the engine's own kernels are to run a call of this size."""
        return self.nbytes is None or nbytes <= self.nbytes


# From times of ai-dynamo/aiconfigurator at 095f58a, as `cut_offs` finds: versions measured on each
# kind of GPU with 2, 4 and 8 GPUs, and the only cut-off below the largest size.
_MEASURED = {
    VLLM: {"A100": "0.14.0", "H100": "0.24.0", "B200": "0.24.0"},
    SGLANG: {"A100": "0.5.10", "H100": "0.5.14", "B200": "0.5.14"},
}
_LOWERED = {(VLLM, "B200", 2): CutOff("B200", VLLM, "0.24.0", 2, 1 << 20, LARGEST_OWN_BYTES, 0.26)}
DEFAULT_CUT_OFFS = tuple(
    _LOWERED.get((engine, gpu, gpus)) or CutOff(gpu, engine, version, gpus, None, LARGEST_OWN_BYTES)
    for engine, versions in _MEASURED.items()
    for gpu, version in versions.items()
    for gpus in (2, 4, 8)
)


def cut_offs(times: Sequence[BackendTime]) -> list[CutOff]:
    """Return the cut-off of each engine in its newest version on each number of each kind of GPU.

    Raises InputError where no engine and NCCL were measured at the same size.
    """
    curves = newest_curves(times)
    found = []
    for (gpu, gpus, engine), (version, own) in curves.items():
        _, nccl = curves.get((gpu, gpus, NCCL), ("", {}))
        sizes = sorted(own.keys() & nccl.keys())
        if engine != NCCL and sizes:
            nbytes, gain = _best_cut_off(sizes, own, nccl)
            found.append(CutOff(gpu, engine, version, gpus, nbytes, sizes[-1], gain))
    if not found:
        raise InputError(
            "no engine was measured at the same sizes as NCCL: give times of both on the same GPUs"
        )
    return found


def newest_curves(
    times: Iterable[BackendTime],
) -> dict[tuple[str, int, str], tuple[str, dict[int, float]]]:
    """Return version and seconds by size for (gpu, gpus, back end), of the newest version alone.

    Repeated times of a size count by their median.
    """
    by_version = dict[tuple[str, int, str], dict[str, dict[int, list[float]]]]()
    for one in times:
        versions = by_version.setdefault((one.gpu, one.gpus, one.backend), {})
        versions.setdefault(one.version, {}).setdefault(one.nbytes, []).append(one.seconds)
    return {
        key: (newest, {nbytes: median(each) for nbytes, each in versions[newest].items()})
        for key, versions in by_version.items()
        for newest in [max(versions, key=_release)]
    }


def _release(version: str) -> list[int]:
    """Return the numbers of a version, by which releases are ordered."""
    return [int(number) for number in re.findall(r"[0-9]+", version)]


def _best_cut_off(
    sizes: Sequence[int], own: Mapping[int, float], nccl: Mapping[int, float]
) -> tuple[int | None, float]:
    """Return cut-off and gain for ascending sizes; None and 0 where no gain exceeds the noise."""
    costs = [sum(math.log(nccl[size]) for size in sizes)]
    for size in sizes:
        costs.append(costs[-1] + math.log(own[size] / nccl[size]))
    best = max(range(len(costs)), key=lambda i: (-costs[i], i))
    gain = max((own[size] / nccl[size] - 1 for size in sizes[best:]), default=0.0)
    if gain <= NOISE:
        return None, 0.0
    return sizes[best - 1] if best else 0, gain


def for_gpu(known: Sequence[CutOff], product: str) -> list[CutOff]:
    """Return the cut-offs of a product, or of the nearest one by compute capability.

    Of two that are equally near the older counts. Raises InputError for an unknown product, and
    for one of which several machines were measured.
    """
    named = [one for one in known if is_named(one, product)]
    exactly = [one for one in named if one.gpu.upper() == product.upper()]
    machines = sorted({one.gpu for one in exactly or named})
    if len(machines) > 1:
        raise InputError(f"{product} is ambiguous: name one of {', '.join(machines)}")
    if named:
        return exactly or named
    wanted = _generation(product)
    generations = {one.gpu: _generation(one.gpu) for one in known}
    if wanted is None:
        raise InputError(
            unknown_name("GPU", product, sorted({*generations, *COMPUTE_CAPABILITIES}))
        )
    near = {gpu: number for gpu, number in generations.items() if number is not None}
    if not near:
        raise InputError(f"{product} was not measured: name one of {', '.join(generations)}")
    nearest = min(near, key=lambda gpu: (abs(near[gpu] - wanted), near[gpu], gpu))
    return [one for one in known if one.gpu == nearest]


def is_named(found: CutOff, product: str) -> bool:
    """Return whether a cut-off is of a product: H100 is in `h100_sxm`, and B200 not in GB200."""
    word = rf"(?<![A-Z0-9]){re.escape(product.upper())}(?![A-Z0-9])"
    return re.search(word, found.gpu.upper()) is not None


def vllm_limits(found: Iterable[CutOff], product: str) -> dict[str, dict[int, int]]:
    """Return vLLM's limits for a product by compute capability and number of GPUs, in bytes.

    Calls below a limit run by its own kernels. Empty where vLLM's own limits are to stay.
    """
    limits = {
        one.gpus: one.nbytes + KERNEL_BYTES
        for one in found
        if one.engine == VLLM and one.nbytes is not None and is_of_generation(one, product)
    }
    capability = _generation(product)
    if capability not in VLLM_LIMITED or not limits:
        return {}
    return {f"{capability // 10}.{capability % 10}": limits}


def is_of_generation(found: CutOff, product: str) -> bool:
    """Return whether a cut-off was measured on GPUs of a product's compute capability.

    Engines have limits of their own for other GPUs, which it does not replace.
    """
    return _generation(found.gpu) == _generation(product)


def _generation(gpu: str) -> int | None:
    """Return the compute capability of a GPU, whose name may be in any case, such as h100_sxm."""
    return compute_capability(gpu.upper()) or compute_capability(gpu.lower())


def sglang_setting(cut_off: CutOff, product: str) -> str:
    """Return how SGLang is told a cut-off; "" where its own limit is to stay."""
    if cut_off.nbytes is None or not is_of_generation(cut_off, product):
        return ""
    if cut_off.nbytes < 1024:
        return DISABLING_OPTION
    return f"{SGLANG_VARIABLE}={cut_off.nbytes >> 10}"


def write_vllm_plugin(folder: Path, limits: Mapping[str, Mapping[int, int]]) -> None:
    """Write a plugin of vLLM, which processes load that have `folder` in PYTHONPATH.

    It lowers the limits of vLLM's own kernels, and never raises one, as buffers have their sizes.
    """
    written = {capability: dict(each) for capability, each in limits.items()}
    package = folder / f"{VLLM_MODULE}-1.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {VLLM_MODULE}\nVersion: 1\n"
    write_atomically(package / "METADATA", metadata)
    entry = f"[vllm.general_plugins]\n{VLLM_MODULE} = {VLLM_MODULE}:register\n"
    write_atomically(package / "entry_points.txt", entry)
    write_atomically(folder / f"{VLLM_MODULE}.py", _VLLM_PLUGIN.format(limits=written))


_VLLM_PLUGIN = '''\
"""Limits of vLLM's own all-reduce kernels in bytes, by compute capability and number of GPUs."""

LIMITS = {limits}


def register():
    """Lower vLLM's limits to these; vLLM calls this in each of its processes."""
    from vllm.distributed.device_communicators import all_reduce_utils as vllm

    for table in (vllm.CUSTOM_ALL_REDUCE_MAX_SIZES, vllm.SYMM_MEM_ALL_REDUCE_MAX_SIZES):
        for capability, limits in LIMITS.items():
            own = table.get(capability, {{}})
            lower = {{gpus: min(own[gpus], limits[gpus]) for gpus in limits if gpus in own}}
            own.update(lower)
'''
