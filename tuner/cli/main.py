"""`tuner`: reads the command line, runs one verb, turns errors into one sentence."""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tuner import __version__
from tuner.base.errors import InputError, TunerError, UsageError
from tuner.base.extras import explain_missing_module
from tuner.base.signals import DEFERRED_INTERRUPT, EXIT_SIGNAL
from tuner.cli.quick_imports import quick_imports
from tuner.cli.terminal.layout import reflow
from tuner.cli.terminal.parser import Parser
from tuner.workflows.time_limit import process_age

COMMANDS = {
    "quickstart": "the whole loop on this computer: probe, tune, validate, report",
    "open": "say what a file holds, what is slow in it, and which commands take it",
    "doctor": "say which MPI is here, what works with it and what to type where it does not",
    "probe": "measure point-to-point messages and every collective algorithm of an MPI library",
    "import-results": "read results of OSU, IMB, nccl-tests, UCC or PICO as measurements",
    "calibrate": "fit alpha, beta and gamma with their uncertainties to measurements",
    "simulate": "predict how long an algorithm takes on a topology",
    "tune": "make a tuning table from measurements",
    "topology": "list, show and draw machines known by name and topologies from files",
    "study": "compare machines that need not exist: the best algorithm over axes of a topology",
    "training": "predict training: images or tokens per second, what limits them, better settings",
    "evaluate": "score selectors and tables on measured tables, at calls they have not seen",
    "train": "learn from measured tables and keep the selector, with its held-out regret",
    "select": "say what a tuning table or a trained selector decides for one call",
    "table": "show, export, check and validate tuning tables",
    "run": "start a program in any language, with its collectives as in a tuning table",
    "record": "find out which collective calls a program makes, and what they cost",
    "compare": "time a whole program with a tuning table and without: what the table gains",
    "serve": "answer over HTTP: tables, what they decide, measurements, studies, jobs",
    "studio": "open pages in the browser on which machines and algorithms can be tried",
    "publish": "hand a tuning table to a service, so that programs follow it from now on",
    "db": "delete old jobs and tables from the database of a service",
    "token": "make, list and revoke the tokens for a service that others can reach",
    "emulate": "emulate a cluster on this computer, with a real network, from a topology file",
    "nccl": "make programs on NCCL follow a table, or say what NCCL would choose by itself",
    "algorithms": "list the algorithms with their cost formulas and sources",
    "completion": "print a script that completes verbs, options and names in a shell",
}
FIRST_COMMANDS = """tuner finds the fastest algorithm for every collective call of MPI and NCCL.

  tuner doctor      # check what works on this computer, and what it lacks
  tuner quickstart  # measure it and make its tuning table, in a few minutes
  tuner studio      # see results and other machines in the browser
  tuner FILE        # see what a file of results, a topology or a trace holds

`tuner help` lists all commands, `tuner help COMMAND` explains one."""
NEXT_COMMANDS = """This computer has {what}.

{follow}
  tuner table show {table}  # see its rules
  tuner studio  # see results and other machines in the browser
  tuner FILE  # see what a file of results, a topology or a trace holds

`tuner help` lists all commands, `tuner help COMMAND` explains one."""
FOLLOW_COMMAND = "  tuner run --table {table} -- COMMAND  # with {title}"
RESUME_HINT = "the same command{} resumes; what is finished is kept"
NO_PARTIAL_OUTPUT = "nothing was written that is not whole"
EXIT_FAILURE = 1
OUTPUT_ERRNOS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser; only the command in `words` is imported, so that help is instant."""
    parser = Parser(
        prog="tuner",
        description="Finds the fastest collective algorithm for every MPI call, and proves it.",
        epilog="`tuner help COMMAND` shows the options and examples of a command. Start with `tuner"
        " quickstart`.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tuner {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, allow_abbrev=False)
        if name in words:
            with quick_imports():
                verb = importlib.import_module(f"tuner.cli.commands.{name.replace('-', '_')}")
            command.description, command.epilog = verb.__doc__, verb.EXAMPLES
            verb.arguments(command)
    asked = commands.add_parser("help", help="explain a command", allow_abbrev=False)
    asked.add_argument(
        "command", nargs="*", metavar="COMMAND", help="command, such as `table export`"
    )
    asked.set_defaults(run=_print_help)
    return parser


def _print_help(options: argparse.Namespace) -> None:
    words = [word for word in options.command if word != "help"]
    build_parser(words).parse_args([*words, "--help"])


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    The status is 0 for success, 2 for a command line that cannot be carried out, 126 or 127 for a
    program that cannot be started, 128 + N for an interruption by signal N and for a reader of the
    output that has gone (SIGPIPE), and 1 for every other error that the user can act on.
    """
    is_program = words is None
    begun = time.monotonic() - (process_age() if is_program else 0.0)
    words = sys.argv[1:] if words is None else words
    arguments = argparse.Namespace(begun=begun)
    try:
        return _run(words, arguments)
    except TunerError as error:
        _print_error(f"tuner: {error}")
        return error.exit_status
    except ModuleNotFoundError as error:
        sentence = explain_missing_module(error)
        if sentence is None:
            raise
        _print_error(f"tuner: {sentence}")
        return EXIT_FAILURE
    except KeyboardInterrupt as interruption:
        again = " without --restart" if getattr(arguments, "restart", False) else " again"
        kept = (
            RESUME_HINT.format(again) if getattr(arguments, "resumes", False) else NO_PARTIAL_OUTPUT
        )
        _print_error(f"\ntuner: interrupted; {kept}")
        return EXIT_SIGNAL + getattr(interruption, "number", signal.SIGINT)
    except OSError as error:
        return _stdout_failed(error)
    finally:
        if not is_program:
            gc.unfreeze()  # what was imported, and what the command has used besides


def _run(words: Sequence[str], arguments: argparse.Namespace) -> int:
    """Run a command whose arguments are added to `arguments`; return its exit status."""
    try:
        with _sigterm_as_interrupt():
            if not words:
                _print_first_commands()
                return 0
            _parse(_with_command(words), arguments)
            return int(arguments.run(arguments) or 0)
    finally:
        print(end="", flush=True)  # while errors of the output are still caught


def _with_command(words: Sequence[str]) -> Sequence[str]:
    """Return the words, behind `open` where the first one is a file and no command."""
    with suppress(OSError, ValueError):  # of words that can be no names of files
        if words[0] not in (*COMMANDS, "help") and Path(words[0]).exists():
            return ("open", *words)
    return words


def _parse(words: Sequence[str], arguments: argparse.Namespace) -> None:
    """Parse the command line into `arguments`.

    Raises UsageError for a word that is not understood; other errors of the parser exit with
    status 2.
    """
    try:
        build_parser(words).parse_args(words, arguments)
    except InputError as reason:
        raise UsageError(str(reason)) from None


def _print_first_commands() -> None:
    """Print the commands that a user begins with, or goes on with where there are tables."""
    from tuner.cli.quickstart_files import OUT
    from tuner.cli.terminal.output import console

    found = sorted(path for path in OUT.glob("*/table.json") if path.is_file())
    print(reflow(_next_commands(found) if found else FIRST_COMMANDS, console().width))


def _next_commands(tables: Sequence[Path]) -> str:
    """Return what to do with tables, each in a directory with the name of its library."""
    from tuner.mpi_libraries.products import title_of

    titles = {shlex.quote(str(path)): title_of(path.parent.name) for path in tables}
    many = "tuning tables" if len(titles) > 1 else "a tuning table"
    return NEXT_COMMANDS.format(
        what=f"{many} for {' and '.join(titles.values())}",
        follow="\n".join(FOLLOW_COMMAND.format(table=t, title=n) for t, n in titles.items()),
        table=next(reversed(titles)),
    )


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM, which batch systems send when the time is over, like Ctrl-C."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    usual = (signal.default_int_handler, signal.SIG_DFL)
    # A program that calls this from Python may have installed handlers of its own.
    changed = {number: handler for number, handler in before.items() if handler in usual}
    for number in changed:
        signal.signal(number, DEFERRED_INTERRUPT.handler)
    try:
        yield
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)


def _stdout_failed(error: OSError) -> int:
    """Return the exit status when standard output cannot be written; reraise other errors."""
    if error.filename is not None or error.errno not in OUTPUT_ERRNOS:
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has seen enough
        return EXIT_SIGNAL + signal.SIGPIPE
    _print_error(f"tuner: standard output cannot be written: {error.strerror}")
    return EXIT_FAILURE


def _print_error(sentence: str) -> None:
    from tuner.cli.terminal.output import print_text  # takes longer to load than `tuner --help`

    print_text(sentence, error=True)


if __name__ == "__main__":
    sys.exit(main())
