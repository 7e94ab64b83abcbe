"""Optional dependencies: the extras of this distribution, and which of them brings a module."""

from __future__ import annotations

import re
from collections import defaultdict

ALL = "all"  # the extra with everything that the command line uses
DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # of modules that are named otherwise
_REQUIREMENT_PATTERN = re.compile(r"([\w.-]+).*; extra == ['\"]([\w-]+)['\"]")


def explain_missing_module(error: ModuleNotFoundError) -> str | None:
    """Return a sentence that says which extra brings the missing module; None if no extra does."""
    module = (error.name or "").partition(".")[0]
    distribution = DISTRIBUTIONS.get(module, module.replace("_", "-"))
    extras = {
        extra: names for extra, names in _read_extras().items() if distribution.lower() in names
    }
    if not extras:
        return None
    fewest = min(map(len, extras.values()))
    choices = [f"'.[{extra}]'" for extra in sorted(extras) if len(extras[extra]) == fewest]
    if ALL in extras:
        choices.append(f"'.[{ALL}]' for every command")
    return (
        f"this command needs {distribution}, which is not installed: in the checkout of tuner,"
        f" pip install {' or '.join(choices)}"
    )


def _read_extras() -> dict[str, set[str]]:
    """Return the distributions that each extra requires, by the metadata of `tuner`.

    There is none where a checkout is on the path without being installed.
    """
    from importlib.metadata import PackageNotFoundError, requires  # slower than `tuner --help`

    try:
        requirements = requires("tuner") or ()
    except PackageNotFoundError:
        return {}
    extras = defaultdict[str, set[str]](set)
    for match in map(_REQUIREMENT_PATTERN.match, requirements):
        if match:
            extras[match[2]].add(match[1].lower())
    return extras
