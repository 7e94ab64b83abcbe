"""The capabilities of an MPI library as one Python interpreter loads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class ControlVariable:
    """A control variable of the library.

    settable    whether it can be set while a program runs; if not, it is read from the environment
                at the start
    values      numbers of an enumeration by name; empty for other variables
    """

    settable: bool
    values: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Guard:
    """A condition on a control variable, without which forcing an algorithm would have no effect.

    value       what the variable must be, or must not be where `equals` is false
    """

    variable: str
    value: int
    equals: bool = True

    def objection(self, present: int | str) -> str:
        """Return why a variable's present value does not meet the condition; "" where it does."""
        return "" if (present == self.value) is self.equals else f"{self.variable} is already set"


@dataclass(frozen=True)
class Capabilities:
    """The control variables that the library has, by name."""

    variables: Mapping[str, ControlVariable]

    def missing_reason(self, settings: Mapping[str, int | str]) -> str:
        """Return why these settings cannot be made; "" where they can."""
        for name, value in settings.items():
            variable = self.variables.get(name)
            if variable is None:
                return f"there is no control variable {name}"
            if isinstance(value, str) and variable.values and value not in variable.values:
                return f"{name} has no value {value}"
            if name.endswith("_algorithm") and value not in variable.values.values():
                return f"{name} has no value {value}"
        return ""

    def startup_only(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the variables that can be set only through the environment."""
        return tuple(
            name for name in names if name in self.variables and not self.variables[name].settable
        )


def capabilities_record(capabilities: Capabilities) -> dict[str, Any]:
    """Return the capabilities as a JSON object."""
    return {"variables": {name: asdict(one) for name, one in capabilities.variables.items()}}


def capabilities_from_record(record: Mapping[str, Any]) -> Capabilities:
    """Return the capabilities in a record of `capabilities_record`."""
    return Capabilities({name: ControlVariable(**one) for name, one in record["variables"].items()})
