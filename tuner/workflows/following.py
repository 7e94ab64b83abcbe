"""Start settings of programs under the files by which an MPI library follows a table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.validation.libraries import TUNED_LIBRARIES


def launch_settings(library: str, file: Path) -> dict[str, Any]:
    """Return how to start a program under a file, and a further file beside it.

    `command` has the words before the program's name, `environment` the variables.
    """
    known = TUNED_LIBRARIES[library]
    options = known.activation(file)
    words = known.profile.setting_words(options.settings)
    return {
        "command": [known.profile.launcher_names[0], *words],
        "environment": dict(options.environment),
    }


def command_line(use: Mapping[str, Any]) -> str:
    """Return what a user types in a shell before the program's name."""
    variables = (f"{name}={shlex.quote(value)}" for name, value in use["environment"].items())
    return " ".join([*variables, shlex.join(use["command"])])
