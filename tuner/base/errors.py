"""Errors whose message is written for the user: what is wrong, where, and what to do."""

from reprlib import Repr

_SHORT_REPR = Repr()
_SHORT_REPR.maxlevel = 1
_SHORT_REPR.maxstring = 80
_SHORT_REPR.maxother = 80


class TunerError(Exception):
    """An error that the user can act on.

    The command line prints it and exits with its `exit_status`.
    """

    exit_status = 1


class InputError(TunerError):
    """A file, argument or environment cannot be used as it is."""


class UsageError(InputError):
    """The command line has to be written differently: a name or an option has no meaning in it."""

    exit_status = 2


class LimitExceededError(InputError):
    """The request is valid but too large for this computer."""


class MissingCostError(InputError):
    """The calibration has no cost for a message that has to be sent."""


class ScheduleError(TunerError):
    """A schedule is malformed or does not do what its collective promises."""


class ProbeError(TunerError):
    """Measuring failed: no launcher, too few slots, a rank that died, a wrong result."""


class LaunchFailedError(ProbeError):
    """Ranks ended with an error."""


class LaunchTimeoutError(ProbeError):
    """Ranks did not end in time.

    stderr      what the ranks and their launcher wrote to standard error until they were killed
    """

    def __init__(self, message: str, stderr: str) -> None:
        super().__init__(message)
        self.stderr = stderr


def shortened_repr(value: object) -> str:
    """Return a short one-line representation of a value, for use in messages."""
    return _SHORT_REPR.repr(value)
