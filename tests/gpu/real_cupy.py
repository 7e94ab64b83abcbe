"""Run by the interpreter of the environment with the real CuPy, which needs no GPU for this.

real_cupy.py names <NAMES       JSON: of each dotted name its parameters, null for no such name
real_cupy.py kernels <SOURCES   JSON: of each [architecture, source] what NVRTC says against it
"""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

import cupy
from cupy_backends.cuda.libs import nvrtc

CUDA_HEADERS = "nvidia/cuda_runtime/include"


def parameters(name: str) -> list[str] | None:
    """Of what has no signature, from the first line of its documentation, as Cython writes it."""
    try:
        found = reduce(getattr, name.split(".")[1:], cupy)
    except AttributeError:
        return None
    if not callable(found):
        return []
    with suppress(ValueError):
        names = [*inspect.signature(found).parameters]
        if "kwargs" not in names:
            return names
    first = next(line for line in (found.__doc__ or "").splitlines() if line.strip())
    return [*written(re.sub(r"^[^(]*\(|\)[^)]*$", "", first))]


def written(text: str) -> Iterator[str]:
    """The names in `intptr_t ptr, size_t size, owner, int device_id=-1`."""
    for part in text.split(","):
        words = part.partition("=")[0].split()
        if words and words != ["/"]:
            yield words[-1]


def objection(architecture: str, source: str) -> str:
    """What NVRTC says against a source; "" where it makes machine code."""
    site = Path(cupy.__file__).parents[1]
    own = site / "cupy/_core/include"
    parts = ("libcudacxx", "thrust", "cub")
    includes = [own, *(own / "cupy/_cccl" / part for part in parts), site / CUDA_HEADERS]
    options = [f"--gpu-architecture={architecture}", "--std=c++17"]
    program = nvrtc.createProgram(source, "fold.cu", (), ())
    try:
        nvrtc.compileProgram(program, (*options, *(f"-I{each}" for each in includes)))
        return "" if nvrtc.getCUBIN(program) else "no machine code"
    except nvrtc.NVRTCError:
        return str(nvrtc.getProgramLog(program))
    finally:
        nvrtc.destroyProgram(program)


def main(what: str) -> None:
    given: Any = json.load(sys.stdin)
    if what == "names":
        print(json.dumps({name: parameters(name) for name in given}))
    else:
        print(json.dumps([objection(*each) for each in given]))


main(sys.argv[1])
