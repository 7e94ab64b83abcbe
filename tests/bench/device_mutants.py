"""Count the errors planted in the device path that the tests find.

    python -m tests.bench.device_mutants [NUMBER ...]      all of them, or those with these numbers

One error after the other (a wait that is missing, a copy the wrong way round, a wrong stream, an
offset, a cache that keeps too much) is planted in a copy of the checkout, in which the unit tests
of devices run, and tests/gpu on the stand-in. Prints who found it; fails where too few are found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MUST = 28
PATIENCE = 240.0  # seconds for the tests of one error; who waits for ever has noticed it
TESTS = (  # the quick ones first
    "tests/unit/runtime/test_device_protocol.py",
    "tests/gpu/test_cuda.py",
    "tests/gpu/test_collectives.py -k rounds|schedules|collectives_on_device|fails_in_nccl|versions"
    "|gives_what|describe",
)
CUDA, STAGING, DEVICES, FOLDING, METHODS, MEMORY, EXECUTOR, NCCL, SCHEDULED, BUFFERS = (
    f"tuner/runtime/{name}.py"
    for name in (
        "cuda",
        "staging",
        "device_pointers",
        "device_reduction",
        "methods",
        "memory",
        "executor",
        "nccl",
        "schedule_call",
        "buffers",
    )
)


class Mutant(NamedTuple):
    """One text of a file replaced by another."""

    path: str
    before: str
    after: str


MUTANTS = (
    # waits that are missing
    Mutant(
        CUDA,
        "        copy = cupy.array(array)\n        self.synchronise()\n",
        "        copy = cupy.array(array)\n",
    ),
    Mutant(
        CUDA,
        "        self.synchronise()\n        source.data.copy_to_host(",
        "        source.data.copy_to_host(",
    ),
    Mutant(
        CUDA,
        "        self.synchronise()\n        for buffer in buffers:",
        "        for buffer in buffers:",
    ),
    Mutant(
        CUDA, "        cupy.cuda.runtime.deviceSynchronize()\n    elif", "        pass\n    elif"
    ),
    Mutant(CUDA, 'cupy.cuda.runtime.streamSynchronize(interface["stream"])', "pass"),
    Mutant(
        CUDA,
        "                with cupy.cuda.Device(number):\n"
        "                    cupy.cuda.runtime.deviceSynchronize()",
        "                pass",
    ),
    Mutant(
        STAGING,
        "            self.device.synchronise_buffers(\n"
        "                *(buffer_of(spec) for spec, access in arguments if access)\n"
        "            )\n",
        "",
    ),
    Mutant(
        STAGING, "            self.device.synchronise()\n            result", "            result"
    ),
    Mutant(
        STAGING,
        "                bring_back()\n            self.device.synchronise()\n",
        "                bring_back()\n",
    ),
    Mutant(
        METHODS,
        "                device.synchronise_buffers(*(buffer_of(spec) for spec, _ in used))",
        "                pass",
    ),
    Mutant(MEMORY, "return (self.staging.device.synchronise,)", "return ()"),
    Mutant(EXECUTOR, "self._pending_ranges = [ALL_MEMORY]", "self._pending_ranges = []"),
    Mutant(
        EXECUTOR,
        "        self._pending_ranges += map(address_range, folded)\n",
        "        del folded\n",
    ),
    Mutant(EXECUTOR, "            ending += self._memory.wait_functions\n", "            pass\n"),
    Mutant(
        NCCL, "            event.synchronize()  # raises any other error\n", "            return\n"
    ),
    # the wrong way round, the wrong stream, the wrong place
    Mutant(
        CUDA,
        "target.data.copy_from_device_async(source.data, source.nbytes)",
        "source.data.copy_from_device_async(target.data, source.nbytes)",
    ),
    Mutant(
        CUDA,
        "        cupy.cuda.get_current_stream().synchronize()",
        "        cupy.cuda.Stream.null.synchronize()",
    ),
    Mutant(
        CUDA,
        "source.data.copy_to_host_async(target.ctypes.data, source.nbytes)",
        "source.data.copy_to_host_async(target.ctypes.data, max(source.nbytes - 1, 0))",
    ),
    Mutant(
        CUDA,
        "target.data.copy_from_host_async(source.ctypes.data, source.nbytes)",
        "target.data.copy_from_host_async(source.ctypes.data, source.nbytes // 2)",
    ),
    Mutant(STAGING, "            if access & WRITE:\n", "            if access & READ:\n"),
    Mutant(STAGING, "if access & READ or isinstance(spec, list | tuple):", "if access & READ:"),
    Mutant(
        BUFFERS,
        "there: Any = Buffer.fromaddress(memory.address, memory.nbytes)",
        "there: Any = Buffer.fromaddress(memory.address + 1, memory.nbytes)",
    ),
    Mutant(FOLDING, "            kernel(first, second)", "            kernel(second, first)"),
    Mutant(EXECUTOR, "one[0] < other[1] and other[0] < one[1]", "one[0] == other[0]"),
    Mutant(SCHEDULED, "                self._copy(source, whole)", "                pass"),
    Mutant(NCCL, "array.data.ptr + start, nbytes", "array.data.ptr, nbytes"),
    # what is kept too long, or believed too soon
    Mutant(DEVICES, "known is not None and known[0]() is owner", "known is not None"),
    Mutant(
        CUDA,
        "memory = cupy.cuda.UnownedMemory(pointer, nbytes, owner, "
        "cupy.cuda.device.get_device_id())",
        "memory = cupy.cuda.UnownedMemory(pointer, nbytes, None, -1)",
    ),
    Mutant(FOLDING, "return result.tobytes() == second.tobytes()", "return True"),
    Mutant(CUDA, "return int(found.device) if on_device else NO_DEVICE", "return 0"),
    Mutant(METHODS, "near.issuperset(n for _, n in used)", "True"),
    Mutant(METHODS, "and _is_reachable_by_mpi(used)", "and True"),
    Mutant(NCCL, "        if place.nccl_version != places[0].nccl_version:", "        if False:"),
)


def found_by(mutant: Mutant, place: Path) -> str:
    """The tests that fail under an error; "" for none."""
    path = place / mutant.path
    text = path.read_text()
    if text.count(mutant.before) != 1:
        raise ValueError(
            f"{mutant.path}: {mutant.before!r} is there {text.count(mutant.before)} times"
        )
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        for tests in TESTS:
            if not passes(tests, place):
                return tests.partition(" -k")[0]
        return ""
    finally:
        path.write_text(text)


def passes(tests: str, place: Path) -> bool:
    """Whether these tests pass in time."""
    words, _, chosen = tests.partition(" -k ")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *words.split()]
    if chosen:
        command += ["-k", " or ".join(chosen.split("|"))]
    standin = f":{place}/tests/support/cupy_standin" if words.startswith("tests/gpu") else ""
    environment = {**os.environ, "PYTHONPATH": f"{place}{standin}"}
    try:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main(numbers: set[int]) -> int:
    """Plant errors, all where no numbers are given; return 1 where too many are not found."""
    chosen = [one for one in enumerate(MUTANTS, 1) if one[0] in numbers or not numbers]
    with tempfile.TemporaryDirectory(prefix="tuner-mutants-") as scratch:
        place = Path(scratch, "checkout")
        ignored = shutil.ignore_patterns(".venv*", ".git", "build", "tuner-out", "__pycache__")
        shutil.copytree(ROOT, place, ignore=ignored)
        for tests in TESTS:
            if not passes(tests, place):
                raise SystemExit(f"{tests}: fails without any error planted")
        found = 0
        for number, mutant in chosen:
            who = found_by(mutant, place)
            found += bool(who)
            first = mutant.before.strip().splitlines()[0]
            print(f"{number:2} {who or 'NOT FOUND':45} {mutant.path}: {first}", flush=True)
    print(f"{found} of {len(chosen)} errors are found")
    return int(len(chosen) - found > len(MUTANTS) - MUST)


if __name__ == "__main__":
    sys.exit(main(set(map(int, sys.argv[1:]))))
