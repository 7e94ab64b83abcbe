"""Run by mpirun: tests of PyTorch's own distributed suite, on the backend `tuner`.

suite_program.py PLACE TEST ...

Every rank leaves in PLACE one line of JSON per test: its name, "passed", "skipped" or "failed", and
why. Rank 0 stops the run after a test that failed on some rank, since the ranks may no longer
make the same calls.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import time
import traceback
import unittest
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch.distributed as dist
from torch.testing._internal import common_distributed
from torch.testing._internal.common_utils import TestCase

import tuner.torch  # noqa: F401 - registers the backend

TIMEOUT = timedelta(seconds=float(os.environ.get("TUNER_SUITE_TIMEOUT", "60")))
SOURCE = "torch.testing._internal.distributed.distributed_test"
WHERE_THE_BACKEND_IS_READ = 'BACKEND = os.environ["BACKEND"]'


class AnyCpuBackend(str):
    """The name of our backend, which is equal to those of all backends for CPUs.

    Tests ask for the name of a backend before they test what it is able to do; in a set of names it
    is gloo's.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash("gloo")

    def __eq__(self, other: object) -> bool:
        return str(other) in (str(self), "gloo", "mpi")

    def __ne__(self, other: object) -> bool:
        return not self == other


def load_suite() -> ModuleType:
    """Import PyTorch's tests with our backend as the one that is tested."""
    os.environ["BACKEND"] = "mpi"  # for groups of two, which others test from eight ranks on
    found = importlib.util.find_spec(SOURCE)
    assert found is not None
    assert found.origin is not None
    text = Path(found.origin).read_text()
    assert text.count(WHERE_THE_BACKEND_IS_READ) == 1
    module = ModuleType(SOURCE)
    module.__file__ = found.origin
    vars(module)["OUR_BACKEND"] = AnyCpuBackend("tuner")
    text = text.replace(WHERE_THE_BACKEND_IS_READ, "BACKEND = OUR_BACKEND")
    sys.modules[SOURCE] = module
    dist.Backend.TUNER = dist.Backend.GLOO  # while decorators ask whether it is available
    exec(compile(text, found.origin, "exec", dont_inherit=True), vars(module))
    dist.Backend.TUNER = "tuner"
    return module


def test_class(module: ModuleType) -> type[unittest.TestCase]:
    """Return the tests as they run where a launcher has started the ranks."""

    def prepare(self: Any) -> None:
        TestCase.setUp(self)  # sets the seed of random numbers
        self.rank, self.file_name = dist.get_rank(), ""

    base: Any = module.DistributedTest._DistTestBase
    body = {
        "setUp": prepare,
        "tearDown": lambda self: None,
        "world_size": property(lambda self: str(dist.get_world_size())),
        "skip_return_code_checks": (),
    }
    return type("Suite", (TestCase, base), body)


class Result(unittest.TestResult):
    """Keeps what ended a test; the suite skips some by an exit status."""

    how, why = "passed", ""

    def addError(self, test: Any, err: Any) -> None:
        codes = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
        if isinstance(err[1], SystemExit) and err[1].code in (*codes, 0):
            self.how = "skipped" if err[1].code else "passed"
            self.why = codes.get(err[1].code, "")
        else:
            self.how = "failed"
            self.why = "".join(traceback.format_exception(*err))[-1500:]

    def addFailure(self, test: Any, err: Any) -> None:
        self.addError(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.how, self.why = "skipped", reason


def run(place: str, *names: str) -> None:
    dist.init_process_group("tuner", timeout=TIMEOUT)
    os.environ["WORLD_SIZE"] = str(dist.get_world_size())
    module = load_suite()
    shared = Path(place, "shared")
    for name in ("barrier", "init_dir", "test_dir"):
        (shared / name).mkdir(parents=True, exist_ok=True)
    os.environ["TEMP_DIR"] = str(shared)
    tests = test_class(module)
    store = dist.distributed_c10d._get_default_store()
    rank, size = dist.get_rank(), dist.get_world_size()
    with Path(place, f"{rank}.jsonl").open("a") as out:
        for number, name in enumerate(names):
            if not hasattr(tests, name):
                continue
            begun = time.monotonic()
            result = Result()
            tests(name).run(result)
            seconds = round(time.monotonic() - begun, 2)
            line = {"test": name, "how": result.how, "why": result.why, "s": seconds}
            out.write(json.dumps(line) + "\n")
            out.flush()
            store.set(f"suite/{number}/{rank}", result.how)
            every = [store.get(f"suite/{number}/{other}") for other in range(size)]
            if b"failed" in every:
                store.set(f"seen/{rank}", "")
                if rank == 0:  # it has the store
                    store.wait([f"seen/{other}" for other in range(size)])
                os._exit(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        os.environ |= {"WORLD_SIZE": "4"}
        print("\n".join(unittest.TestLoader().getTestCaseNames(test_class(load_suite()))))
    else:
        sys.stdout = io.StringIO()
        run(*sys.argv[1:])
