"""Run an unmodified mpi4py program with tuned collectives.

    mpirun -np 8 python -m tuner.run --table table.json program.py argument ...
    mpirun -np 8 python -m tuner.run --service http://head:8765 --feedback -m package.module
    mpirun -np 8 tuner-run --table table.json program.py argument ...

Both are the same, but in a directory with a tuner.py of its own Python takes that for `tuner` in
`python -m tuner.run`: there type `tuner-run`, or `python -P -m tuner.run`.

`MPI.COMM_WORLD` follows the table; all else is as under `python -m mpi4py`: the program is
`__main__`, and an exception that nobody catches ends all ranks. What no option says the environment
decides (TUNER_TABLE, TUNER_SERVICE, TUNER_CLUSTER, TUNER_FEEDBACK). Whatever is wrong with the
table is one line on standard error, and the program runs with the library's own collectives.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tuner.base.extras import explain_missing_module
from tuner.base.thread_levels import THREAD_LEVELS
from tuner.runtime.dynamic_rules import enable_dynamic_rules
from tuner.runtime.program_imports import (
    has_main_module,
    is_import_path_entry,
    use_working_directory,
)

SCRIPT = "tuner-run"  # console script of this module


class _OneLineErrorParser(argparse.ArgumentParser):
    """A parser that reports errors in one line without the usage, since every rank prints it."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}: see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser: options come first, the program or -m takes all further arguments."""
    made = _OneLineErrorParser(
        prog=SCRIPT if Path(sys.argv[0]).name == SCRIPT else "python -m tuner.run",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = made.add_mutually_exclusive_group()
    source.add_argument("--table", type=Path, metavar="FILE", help="tuning table to follow")
    source.add_argument(
        "--service", metavar="URL", help="service to fetch the published table from"
    )
    made.add_argument(
        "--cluster", metavar="NAME", help="cluster whose table to fetch, if the service has several"
    )
    made.add_argument(
        "--thread-level", choices=THREAD_LEVELS, help="thread level to start MPI with"
    )
    made.add_argument("--feedback", action="store_true", help="report times to the service")
    made.add_argument(
        "--verbose", action="store_true", help="print at the end how many calls followed which rule"
    )
    made.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="module and its arguments"
    )
    made.add_argument("program", nargs=argparse.REMAINDER, help="program file and its arguments")
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program; exits with status 2 for invalid arguments, else as the program does."""
    use_working_directory()
    reader = make_parser()
    options = reader.parse_args(argv)
    program = options.program if options.module is None else options.module
    if not program or (options.module is not None and options.program):
        reader.error("expected a program")
    if options.module is None:
        if not Path(program[0]).exists():
            reader.error(f"{program[0]} does not exist: give the path of a program")
        if is_import_path_entry(program[0]) and not has_main_module(program[0]):
            reader.error(f"{program[0]}: expected a __main__.py in it")
    elif not _is_module(program[0]):
        reader.error(f"module {program[0]} was not found: install it, or mend its name")
    try:
        from tuner.runtime.thread_level import started_at

        with enable_dynamic_rules(), started_at(options.thread_level):
            from tuner.runtime.script import run  # starts MPI: after the arguments are checked
    except ModuleNotFoundError as error:
        sentence = explain_missing_module(error)
        if sentence is None:
            raise
        reader.exit(1, f"{reader.prog}: {sentence}; `tuner doctor` says what fits this MPI\n")

    command = program if options.module is None else ["-m", *program]
    feedback = options.feedback or None  # None: the environment decides
    run(
        command,
        options.table,
        options.service,
        options.cluster,
        feedback=feedback,
        verbose=options.verbose,
    )


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


if __name__ == "__main__":
    main(sys.argv[1:])
