"""Check what a tuning gains, independently of the program that made it.

    python -m tests.field.check tuner-out

Calls that the tuning changes, and as many that it does not, are timed by a
plain C program, in launches with and without the tuning that alternate. Ctrl-C
keeps what is finished; the same command goes on from there. The exit status is
1 if a call is certainly slower, or gives a wrong result.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.field.calls import Call, choose_calls
from tests.field.launches import (
    NO_TUNING,
    PATTERNS,
    ROOT,
    Launch,
    Program,
    compile_program,
    core_distance,
    launch,
    require_no_tuning,
)
from tests.field.record import Pair, Record, plan_digest
from tests.field.result_json import to_json
from tests.field.results import analyse
from tests.field.summary import format_result
from tests.field.tables import CheckError, Library, read_libraries

START_S = 1.5  # guess of what a launch takes beside measuring, until some are known
# Launches differ more than calls of one launch: twice the time for a call narrows an interval by
# less than a tenth, twice the launches by a third.
LAUNCHES = 16
SECONDS = 0.01
REPEATS = 5  # of a pair of launches between which the machine changed


@dataclass(frozen=True)
class Setting:
    """Hold what one launch measures: the calls of one library on one number of ranks."""

    library: Library
    program: Program
    ranks: int
    calls: tuple[Call, ...]


def main(words: list[str] | None = None) -> int:
    options = _options(words)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell ignores Ctrl-C
        signal.signal(number, signal.default_int_handler)
    try:
        return check(options)
    except CheckError as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the same command goes on from here", file=sys.stderr)
        return 130


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.field.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path, help="what 'make tune' made, such as tuner-out")
    parser.add_argument(
        "--launches", type=_launches, default=LAUNCHES, help=f"of each arm (default: {LAUNCHES})"
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=SECONDS,
        help=f"for each call and pattern of a launch (default: {SECONDS})",
    )
    parser.add_argument(
        "--libraries",
        type=lambda text: text.split(","),
        help="comma list (default: all of the directory)",
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed chooses other sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON")
    parser.add_argument("--restart", action="store_true", help="keep no earlier launches")
    return parser.parse_args(words)


def _launches(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 2, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= 10:
        raise argparse.ArgumentTypeError(f"expected seconds above 0 and up to 10, got {text!r}")
    return seconds


def check(options: argparse.Namespace) -> int:
    """Measure what is not yet measured, print the result, and return the exit status."""
    require_no_tuning()
    libraries = read_libraries(options.directory, options.libraries)
    calls = {library.name: choose_calls(library, options.seed) for library in libraries}
    plans = {
        library.name: plan_digest(library, calls[library.name], options.seconds)
        for library in libraries
    }
    record = Record(options.directory / "field.ndjson", plans, options.restart)
    settings = [setting for lib in libraries for setting in _settings(lib, calls[lib.name])]
    measure(settings, record, options.launches, options.seconds)
    pairs = [pair for pair in record.pairs.values() if pair.number < options.launches]
    result = analyse(libraries, calls, pairs)
    print(format_result(libraries, result))
    if options.json:
        options.json.write_text(json.dumps(to_json(result), indent=1) + "\n")
    return int(result.failed)


def _settings(library: Library, calls: list[Call]) -> list[Setting]:
    program = compile_program(library.name, ROOT / "build" / "field")
    return [
        Setting(library, program, ranks, tuple(call for call in calls if call.ranks == ranks))
        for ranks in sorted({call.ranks for call in calls})
    ]


def measure(settings: list[Setting], record: Record, launches: int, seconds: float) -> None:
    """Launch the pairs that the record does not have; show progress on standard error."""
    keys = [(setting, number) for number in range(launches) for setting in settings]
    missing = [
        (setting, number)
        for setting, number in keys
        if (setting.library.name, setting.ranks, number) not in record.pairs
    ]
    guess = {_key(setting): _guess(setting, seconds) for setting in settings}
    for done, (setting, number) in enumerate(missing):
        left = sum(guess[_key(later)] for later, _ in missing[done:])
        say(
            f"launch {2 * done + 1} and {2 * done + 2} of {2 * len(missing)}: "
            f"{setting.library.name}, {setting.ranks} ranks, {left / 60:.1f} min left"
        )
        begin = time.monotonic()
        pair = launch_pair(setting, number, seconds)
        guess[_key(setting)] = time.monotonic() - begin
        for _ in range(REPEATS):
            if pair.steady:
                break
            say("the distance of the cores changed meanwhile: launching both again")
            pair = launch_pair(setting, number, seconds)
        record.add(pair)


def _key(setting: Setting) -> tuple[str, int]:
    return setting.library.name, setting.ranks


def _guess(setting: Setting, seconds: float) -> float:
    return 2 * (START_S + 1.3 * seconds * len(PATTERNS) * len(setting.calls))


def launch_pair(setting: Setting, number: int, seconds: float) -> Pair:
    """Launch both arms, with the same calls in the same random order."""
    random = Random(f"{setting.library.name} {setting.ranks} {number}")
    calls = random.sample(setting.calls, len(setting.calls))
    arms = [("default", NO_TUNING), ("tuned", setting.library.use)]
    if tuned_first(setting.library.name, setting.ranks, number):
        arms.reverse()
    done: dict[str, Launch] = {}
    distances = core_distance(setting.program)
    for arm, use in arms:
        done[arm] = launch(setting.program, use, setting.ranks, calls, seconds)
        distances += core_distance(setting.program)
    key = (setting.library.name, setting.ranks, number)
    return Pair(*key, done["default"], done["tuned"], tuple(distances))


def tuned_first(library: str, ranks: int, number: int) -> bool:
    """Return which arm of a pair begins: at random, but either in one of two pairs."""
    odd = Random(f"{library} {ranks} {number // 2}").random() < 0.5
    return (number % 2 == 1) == odd


def say(text: str) -> None:
    """Show a line of progress on standard error, over the last one in a terminal."""
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"{text:<79}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
