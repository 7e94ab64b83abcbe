"""A user's session in an overlay: the MPI of the distribution, and the project as it is here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.overlay import Overlay, OverlayError
from tests.support.waiting import patience

ROOT = Path(__file__).resolve().parents[2]
HOME, WORK = "/root/site", "/root/site/work"


@dataclass(frozen=True)
class Site:
    """An interpreter with an MPI of the distribution, as a user of it has it.

    environment     what that user has exported
    """

    overlay: Overlay
    base: str
    python: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def tuner(self, *words: str, timeout: float = patience()) -> subprocess.CompletedProcess[str]:
        """Run `tuner WORD ...`."""
        return self.run(sys.executable, "-m", "tuner.cli.main", *words, timeout=timeout)

    def run(
        self, *command: str, timeout: float = patience(), folder: str = WORK
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of that user."""
        known = {"HOME": HOME, "PYTHONPATH": str(ROOT), **self.environment}
        return self.overlay.run(command, known, timeout, folder)


@contextmanager
def project_overlay(place: Path, packages: tuple[str, ...]) -> Iterator[Overlay]:
    """Make an overlay with the project, the interpreter of the tests and packages of Debian.

    Skips the tests where that cannot be had.
    """
    try:
        made = Overlay(place)
    except OverlayError as reason:
        pytest.skip(str(reason))
    try:
        for directory in (ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix)):
            made.bind(directory)
        install(made, packages)
        made.run(["mkdir", "-p", WORK], {}, patience(), "/").check_returncode()
        yield made
    finally:
        made.close()


def install(overlay: Overlay, packages: tuple[str, ...]) -> None:
    """Install packages of Debian; skip the test where they cannot be had."""
    try:
        overlay.install(packages)
    except OverlayError as reason:
        pytest.skip(f"packages cannot be installed: {reason}")
