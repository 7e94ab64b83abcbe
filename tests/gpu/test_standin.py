"""The stand-in for CuPy held against the real one, and our kernels given to the real compiler."""

from __future__ import annotations

import inspect
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.runtime.device_protocol import DeviceInterface

PYTHON = Path(__file__).parents[2] / ".venv-cupy" / "bin" / "python"
PROGRAM = Path(__file__).with_name("real_cupy.py")
ARCHITECTURES = ("sm_70", "sm_80", "sm_90", "sm_100")
TYPES = {
    "?": "bool",
    "b": "signed char",
    "B": "unsigned char",
    "h": "short",
    "H": "unsigned short",
    "i": "int",
    "I": "unsigned int",
    "l": "long",
    "L": "unsigned long",
    "q": "long long",
    "Q": "unsigned long long",
    "e": "float16",
    "f": "float",
    "d": "double",
    "F": "complex<float>",
    "D": "complex<double>",
}
SOURCE = """
#include <cupy/complex.cuh>
#include <cupy/float16.cuh>
#include <cupy/carray.cuh>
extern "C" __global__ void fold{number}(const {type}* one, {type}* two, ptrdiff_t count)
{{
    const ptrdiff_t step = blockDim.x * gridDim.x;
    for (ptrdiff_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {{
        const {type} first = one[i];
        {type}& second = two[i];
        {operation};
    }}
}}
"""


def real(what: str, given: object) -> Any:
    """What the program under the real CuPy answers."""
    if not PYTHON.is_file():
        pytest.skip(f"{PYTHON} is not there: `make .venv-cupy/ready`")
    done = subprocess.run(
        [PYTHON, "-I", PROGRAM, what],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def shown() -> dict[str, list[str]]:
    """Every public name of the stand-in, with its parameters; NCCL's needs the library itself."""
    import cupy

    found: dict[str, list[str]] = {}
    for module in (cupy, cupy.cuda, cupy.cuda.device, cupy.cuda.runtime):
        for name, value in vars(module).items():
            whole = f"{module.__name__}.{name}"
            if name.startswith("_") or inspect.ismodule(value) or not _own(value, module):
                continue
            found[whole] = _parameters(value)
            if inspect.isclass(value):
                methods = {k: v for k, v in vars(value).items() if not k.startswith("_")}
                found |= {f"{whole}.{k}": _parameters(v) for k, v in methods.items()}
    return found


def _own(value: Any, module: Any) -> bool:
    return str(getattr(value, "__module__", module.__name__)).partition(".")[0] == "cupy"


def _parameters(value: Any) -> list[str]:
    if not callable(value):
        return []
    kinds = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    if inspect.isclass(value) and issubclass(value, Exception):
        return []
    given = inspect.signature(value).parameters.values()
    return [one.name for one in given if one.kind not in kinds]


def test_names_and_parameters_are_those_of_the_real_one(stands_in: bool) -> None:
    if not stands_in:
        pytest.skip("this is the real one")
    ours = shown()
    assert len(ours) > 60
    theirs = real("names", sorted(ours))
    assert [name for name in ours if theirs[name] is None] == []
    wrong = {
        name: (own, theirs[name])
        for name, own in ours.items()
        if own and own != [each for each in theirs[name] if each in own]
    }
    assert wrong == {}


@pytest.mark.representative("sm_70")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles(device: DeviceInterface, architecture: str) -> None:
    from mpi4py import MPI

    from tuner.runtime.cuda import EXPRESSIONS

    sources = {
        code: "".join(
            SOURCE.format(number=number, type=name, operation=f"second = {expression}")
            for number, (op, (expression, _)) in enumerate(EXPRESSIONS.items())
            if device.kernel(MPI.Op.fromhandle(op), np.dtype(code))
        )
        for code, name in TYPES.items()
    }
    jobs = [[architecture, text] for text in sources.values()]
    assert all("fold" in text for text in sources.values())
    assert set(real("kernels", jobs)) == {""}
