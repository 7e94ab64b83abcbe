"""Sentences on names that do not exist, with the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.base.errors import shortened_repr


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'allreduce'?)`, or "" where no known name is similar."""
    from difflib import get_close_matches  # not needed until something is wrong

    names = list(map(str, known))
    similar = get_close_matches(name.lower(), names, n=1) or [
        one for one in names if name and one.startswith(name.lower())
    ]
    return f" (did you mean {similar[0]!r}?)" if similar else ""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the sentence for a name that no `kind` has, such as `collective`, with its choices.

    name    what was given as a name, which need not be a text
    """
    names = list(map(str, known))
    similar = did_you_mean(name, names) if isinstance(name, str) else ""
    return f"unknown {kind} {shortened_repr(name)}{similar}: choose one of {', '.join(names)}"
