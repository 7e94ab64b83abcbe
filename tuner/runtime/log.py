"""Lines in the log `tuner`.

They are written inside users' programs, so no exception is raised here, not even one from a handler
of the program.
"""

from contextlib import suppress

_WARNED: set[str] = set()


def warn(line: str) -> None:
    """Write a warning."""
    _write("WARNING", line)


def warn_once(line: str) -> None:
    """Write a warning unless it was written before.

    A program may create thousands of similar communicators.
    """
    if line not in _WARNED:
        _WARNED.add(line)
        warn(line)


def inform(line: str) -> None:
    """Write a line of level INFO."""
    _write("INFO", line)


def is_info_enabled() -> bool:
    """Return whether a line of level INFO is written anywhere."""
    with suppress(Exception):
        import logging

        return logging.getLogger("tuner").isEnabledFor(logging.INFO)
    return False


def _write(level: str, line: str) -> None:
    with suppress(Exception):
        import logging  # slow to import

        logging.getLogger("tuner").log(getattr(logging, level), "%s", line)
