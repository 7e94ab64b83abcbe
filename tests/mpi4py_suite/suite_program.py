"""Run by mpirun: mpi4py's own tests: `suite_program.py TESTS PLACE ARGUMENT ...`.

TESTS is the directory of the tests, ARGUMENTs those of its main program. Every rank leaves in PLACE
how many tests it ran and skipped and which ones failed, as JSON, and says nothing else: what
several ranks write to one stream is mixed up.
"""

from __future__ import annotations

import json
import os
import sys
import unittest
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from mpi4py import MPI

Failure = tuple[type[BaseException], BaseException, TracebackType]


class Result(unittest.TextTestResult):
    """Keeps the names of the tests that failed, with the first line of why."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.failed: dict[str, str] = {}

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self.note(test, err)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self.note(test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, err)

    def note(self, test: unittest.TestCase, err: Failure) -> None:
        lines = f"{err[0].__name__}: {err[1]}".strip().splitlines()
        self.failed[test.id()] = lines[0]


def main(tests: str, place: str, *arguments: str) -> None:
    sys.path.insert(0, tests)
    os.chdir(tests)
    suite = __import__("main")
    with Path(os.devnull).open("w") as nowhere:
        runner = unittest.TextTestRunner(stream=nowhere, resultclass=Result, warnings="ignore")
        rank, results = MPI.COMM_WORLD.rank, list[Result]()
        run = runner.run

        def keep(test: Any) -> Any:
            result = run(test)
            assert isinstance(result, Result)
            results.append(result)
            return result

        vars(runner)["run"] = keep
        with suppress(SystemExit):
            suite.main(module=None, argv=["main.py", "-q", *arguments], testRunner=runner)
    (result,) = results
    told = {"ran": result.testsRun, "skipped": len(result.skipped), "failed": result.failed}
    partial = Path(place, f"{rank}.partial")
    partial.write_text(json.dumps(told))
    partial.rename(Path(place, f"{rank}.json"))


main(*sys.argv[1:])
