"""Commands that give the ranks environment variables, such as LD_PRELOAD, through their launcher.

Launchers hand variables to the ranks on every host by options of their own, which spares the
launcher itself the preload. Where the command is no launcher that is known, such as a script, the
variables are put into its environment.

Our library comes first in LD_PRELOAD, as it also comes before tools that are linked to the program:
either kind sees the calls of the program, and what it passes on comes to our library.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tuner.launch.executables import SRUN, KnownLauncher, identify_launcher, is_launcher_name
from tuner.launch.launcher import PRELOAD_VARIABLE
from tuner.mpi_libraries.launcher_options import SRUN_OPTIONS, GivenOption, LauncherOptions
from tuner.mpi_libraries.profiles import PROFILES, LibraryProfile

# Commands that start the command which their arguments end with.
PREFIXES = ("nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time", "timeout")
SRUN_EXPORT_VARIABLE = "SLURM_EXPORT_ENV"  # stands for srun's --export
NOTHING_EXPORTED = ("NONE", "NIL")
Variables = Mapping[str, str]
MAX_INTERPRETERS = 4  # scripts whose interpreters are scripts: the limit of Linux
ELF_64_BITS = b"\x7fELF\2"  # how programs of 64 bits begin
ELF_HEADER_BYTES = 64
PT_INTERP = 3  # ELF: type of the program header that names the dynamic linker


@dataclass(frozen=True)
class PreparedCommand:
    """The words of a command, and the environment in which it is to be started."""

    words: tuple[str, ...]
    environment: Variables


@dataclass(frozen=True)
class LaunchLine:
    """A command whose launcher is known.

    first       index of the first word after the launcher
    launcher    None for that of the batch system
    """

    words: tuple[str, ...]
    first: int
    options: LauncherOptions
    launcher: KnownLauncher | None = None

    @classmethod
    def find(cls, words: Sequence[str], environment: Variables) -> LaunchLine | None:
        """Return the launcher in a command; None where it has none that is known."""
        at = 0
        if _is_prefix(words[0]):
            names = (i for i, word in enumerate(words) if is_launcher_name(word) or _is_srun(word))
            at = next(names, 0)
        if _is_srun(words[at]):
            return cls(tuple(words), at + 1, SRUN_OPTIONS)
        found = identify_launcher(words[at], environment.get("PATH"))
        if found is None:
            return None
        return cls(tuple(words), at + 1, found.profile.launcher_options, found)

    @property
    def inherits(self) -> bool:
        """Return whether variables that one context sets hold for the following ones, too."""
        major = self.launcher.version.partition(".")[0] if self.launcher else ""
        return major.isdecimal() and int(major) >= self.options.inherited_since

    def contexts(self) -> Iterator[tuple[int, int]]:
        """Yield where the words of each context begin and end; colons are between them."""
        start = self.first
        for at, word in enumerate([*self.words, ":"]):
            if at >= start and word == ":":
                yield start, at
                start = at + 1


def rank_command(
    words: Sequence[str], variables: Variables, environment: Variables = os.environ
) -> PreparedCommand:
    """Return a command like this one whose ranks have these variables, on every host.

    environment     the environment in which the command would be started

    An LD_PRELOAD of the environment or of the command follows that of `variables`. Any other
    variable that the command itself sets for its ranks keeps the value that it has there.
    """
    if not variables:
        return PreparedCommand(tuple(words), environment)
    words, assigned = _split_assignments(words)
    known = {**environment, **assigned}
    line = LaunchLine.find(words, known)
    wanted = {name: _with_given(name, value, known.get(name)) for name, value in variables.items()}
    if line is None:
        return PreparedCommand(tuple(words), {**known, **wanted})
    if line.launcher is None:
        return _through_export(line, variables, known)
    listed = _through_variable_list(line, line.launcher.profile, variables, known)
    return listed or PreparedCommand(_through_options(line, wanted, variables, known), known)


def launcher_of(words: Sequence[str]) -> KnownLauncher | None:
    """Return the MPI launcher in a command, else the first one on PATH; None without any."""
    words, assigned = _split_assignments(words)
    known = {**os.environ, **assigned}
    line = LaunchLine.find(words, known)
    if line and line.launcher:
        return line.launcher
    names = dict.fromkeys(n for profile in PROFILES.values() for n in profile.launcher_names)
    return next(filter(None, (identify_launcher(name, known.get("PATH")) for name in names)), None)


def program_of(words: Sequence[str]) -> Path | None:
    """Return the executable that the ranks of the first context run.

    None where it cannot be known, as where the command is a script.
    """
    words, assigned = _split_assignments(words)
    known = {**os.environ, **assigned}
    line = LaunchLine.find(words, known)
    start, stop = next(line.contexts()) if line else (0, 1)
    at = line.options.read(words, start, stop)[1] if line else 0
    found = shutil.which(words[at], path=known.get("PATH")) if at < stop else None
    if found is None or (line is None and (_is_prefix(words[0]) or is_script(Path(found)))):
        return None
    return Path(found)


def unpreloadable_reason(program: Path) -> str:
    """Return why nothing can be preloaded into a program; "" where it can.

    For a script this is that of its interpreter.
    """
    try:
        for _ in range(MAX_INTERPRETERS + 1):
            if not is_script(program):
                return _unpreloadable_binary(program)
            with program.open("rb") as file:
                interpreter = file.readline()[2:].split()
            program = Path(os.fsdecode(interpreter[0])) if interpreter else Path()
    except OSError as reason:
        return f"{program} cannot be read: {reason.strerror}"
    return f"{program} is a script whose interpreter is a script"


def is_script(program: Path) -> bool:
    """Return whether a file begins as a script does; False where it cannot be read."""
    try:
        with program.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _unpreloadable_binary(program: Path) -> str:
    status = program.stat()
    with program.open("rb") as file:
        header = file.read(ELF_HEADER_BYTES)
        if header[: len(ELF_64_BITS)] != ELF_64_BITS or len(header) < ELF_HEADER_BYTES:
            return f"{program} is neither a program of 64 bits nor a script"
        if not _is_dynamically_linked(header, file):
            return f"{program} is statically linked"
    if status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid():
        return f"{program} runs as another user (setuid)"
    if status.st_mode & stat.S_ISGID and status.st_gid != os.getegid():
        return f"{program} runs as another group (setgid)"
    return ""


def _is_dynamically_linked(header: bytes, file: BinaryIO) -> bool:
    """Return whether an ELF file names a dynamic linker, which is what loads libraries first."""
    (offset,) = struct.unpack_from("=Q", header, 32)
    size, number = struct.unpack_from("=HH", header, 54)
    file.seek(offset)
    kinds = (file.read(size)[:4] for _ in range(number))
    return struct.pack("=I", PT_INTERP) in kinds


def _is_prefix(word: str) -> bool:
    return Path(word).name in PREFIXES


def _is_srun(word: str) -> bool:
    return Path(word).name == SRUN


def _split_assignments(words: Sequence[str]) -> tuple[Sequence[str], dict[str, str]]:
    """Return the command after `env NAME=VALUE ...`, and what that sets."""
    if Path(words[0]).name != "env":
        return words, {}
    at = next((i for i, word in enumerate(words) if i and "=" not in word), len(words))
    if at == len(words) or any(word.startswith("-") for word in words[1 : at + 1]):
        return words, {}
    return words[at:], dict(word.split("=", 1) for word in words[1:at])


def _with_given(name: str, value: str, given: str | None) -> str:
    """Return the value of a variable whose value is already `given`; it follows our preload."""
    return f"{value}:{given}" if name == PRELOAD_VARIABLE and given else value


def _through_options(
    line: LaunchLine, wanted: Variables, variables: Variables, environment: Variables
) -> tuple[str, ...]:
    """Return the words with the launcher's options for `wanted`."""
    words, options = list(line.words), line.options
    first_option = options.environment[0]
    for start, stop in reversed(list(line.contexts())):
        missing = dict(wanted)
        for option in options.read(words, start, stop)[0]:
            if option.name in options.environment and option.index + 1 < stop:
                name = _add_to_assignment(words, option, variables, environment)
                if option.name == first_option:
                    missing.pop(name, None)
        if start == line.first or not line.inherits:
            words[start:start] = options.assignment_words(missing)
    return tuple(words)


def _add_to_assignment(
    words: list[str], option: GivenOption, variables: Variables, environment: Variables
) -> str:
    """Add our preload where an option sets that variable; return the name of its variable."""
    name, joined, value = option.values[0].partition("=")
    if name == PRELOAD_VARIABLE and name in variables:
        given = value if joined else "".join(option.values[1:]) or environment.get(name)
        both, at = _with_given(name, variables[name], given), option.index + len(option.values)
        words[at] = both if len(option.values) == 2 else f"{name}={both}"
    return name


def _through_variable_list(
    line: LaunchLine, profile: LibraryProfile, variables: Variables, environment: Variables
) -> PreparedCommand | None:
    """Return the command with a longer list of variables, where it has such a list."""
    setting, words = line.options.variable_list, list(line.words)
    variable = profile.settings_prefix + setting

    def longer(text: str) -> str:
        entries = [entry for entry in text.split(";") if entry]
        for name, value in variables.items():
            _set_entry(entries, name, value, environment.get(name), environment)
        return ";".join(entries)

    if setting and variable in environment:
        return PreparedCommand(line.words, {**environment, variable: longer(environment[variable])})
    for start, stop in line.contexts() if setting else ():
        for option in line.options.read(words, start, stop)[0]:
            if len(option.values) == 2 and option.values[0] == setting:
                words[option.index + 2] = longer(option.values[1])
                return PreparedCommand(tuple(words), environment)
    return None


def _through_export(
    line: LaunchLine, variables: Variables, environment: Variables
) -> PreparedCommand:
    """Return a command of srun that also exports these variables.

    With ALL a variable of the environment takes precedence over the list, in which no value may
    have a comma; such variables are put into the environment.
    """
    words, known = list(line.words), dict(environment)
    for start, stop in reversed(list(line.contexts())):
        found = line.options.read(words, start, stop)[0]
        given = [each for each in found if each.name in line.options.environment and each.values]
        text = given[-1].values[0] if given else environment.get(SRUN_EXPORT_VARIABLE, "ALL")
        entries = [] if text in NOTHING_EXPORTED else text.split(",")
        for name, value in variables.items():
            if ("ALL" in entries and name in environment) or "," in value:
                known[name] = _with_given(name, value, environment.get(name))
                entries += [] if {"ALL", name} & set(entries) else [name]
            else:
                _set_entry(entries, name, value, None, environment)
        option = f"--export={','.join(entries)}"
        if given:
            at = given[-1].index
            words[at : at + (1 if "=" in words[at] else 2)] = [option]
        elif entries != ["ALL"]:
            words.insert(start, option)
    return PreparedCommand(tuple(words), known)


def _set_entry(
    entries: list[str], name: str, value: str, inherited: str | None, environment: Variables
) -> None:
    """Set a variable in a list of `NAME` and `NAME=VALUE`, where that does not set it already.

    inherited   value that the ranks have if the list does not name the variable
    """
    given = next((entry for entry in entries if entry.partition("=")[0] == name), None)
    if given is None:
        entries.append(f"{name}={_with_given(name, value, inherited)}")
    elif name == PRELOAD_VARIABLE:
        theirs = given.partition("=")[2] if "=" in given else environment.get(name)
        entries[entries.index(given)] = f"{name}={_with_given(name, value, theirs)}"
