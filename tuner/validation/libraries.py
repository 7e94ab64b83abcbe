"""The MPI libraries that can be started, and what each does with a table, by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tuner.base.progress import ProgressCallback
from tuner.core.table import AlgorithmChoice, RuleKey, TuningTable
from tuner.formats.registry import ExportOptions
from tuner.launch import Launcher, MultiHostLauncher
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms, PlacedCollective
from tuner.mpi_libraries.profiles import LibraryProfile
from tuner.validation import validate_intelmpi, validate_mpich, validate_openmpi
from tuner.validation.timing import LaunchOptions
from tuner.validation.validation import RuleValidation


class ValidatedLibrary(Protocol):
    """An MPI library that is started under a table's file, to see what it runs."""

    @property
    def profile(self) -> LibraryProfile:
        """Its facts."""

    def unsupported_reason(self, library: str) -> str:
        """Return why tables of this version cannot be validated; "" where they can."""

    def validate(
        self,
        table: TuningTable,
        file: Path,
        starter: Launcher | MultiHostLauncher,
        directory: Path,
        options: ExportOptions,
        progress: ProgressCallback,
    ) -> list[RuleValidation]:
        """Run the rules of a table in the library.

        file        written from the table with `options`; a further file lies beside it
        directory   for files of the launches; all hosts see it

        Raises InputError when the file is not that of the table, ProbeError when the ranks fail.
        """


class TunedLibrary(ValidatedLibrary, Protocol):
    """An MPI library whose tables are made by measuring."""

    def write_further_file(
        self, table: TuningTable, file: Path, python: Path, *, commutative_only: bool = False
    ) -> None:
        """Write what the library of `python` reads beside the table's file, if anything.

        Where it reads nothing else, a further file that is left from another table is removed.
        """

    def activation(self, file: Path) -> LaunchOptions:
        """Return the options under which it follows a file and the further file beside it."""

    def limitation(self, python: Path) -> str:
        """Return a sentence on a known disadvantage of following a table in it; "" for none."""

    def find_defaults(
        self, starter: MultiHostLauncher, calls: Sequence[PlacedCollective], max_bytes: int
    ) -> tuple[DefaultAlgorithms, ...]:
        """Return the algorithms that its default runs in calls of up to `max_bytes` bytes.

        Raises InputError and ProbeError where they cannot be found out.
        """

    def default_choices(
        self, launcher: Launcher, key: RuleKey, sizes: Sequence[int]
    ) -> Iterator[AlgorithmChoice | None]:
        """Yield what it chooses by itself for calls of `sizes` bytes; None where it is unknown."""

    def decides_alike(self, library: str, installed: str, nodes: int) -> bool:
        """Return whether a release decides calls on so many nodes as the installed one would."""


_TUNED: tuple[TunedLibrary, ...] = (validate_openmpi.LIBRARY, validate_mpich.LIBRARY)
_VALIDATED: tuple[ValidatedLibrary, ...] = (*_TUNED, validate_intelmpi.LIBRARY)
TUNED_LIBRARIES: Mapping[str, TunedLibrary] = {each.profile.name: each for each in _TUNED}
VALIDATED_LIBRARIES: Mapping[str, ValidatedLibrary] = {
    each.profile.name: each for each in _VALIDATED
}
