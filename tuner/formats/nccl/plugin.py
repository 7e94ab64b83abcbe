"""Our own tuner plugin: compile it, write the rules beside it, and test the result."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tuner.base.atomic_io import require_writable_dir, write_atomically
from tuner.base.c_compiler import COMPILERS
from tuner.base.compiler import run_compiler
from tuner.base.errors import InputError
from tuner.base.own_modules import own_module_command, own_module_environment
from tuner.base.units import plural
from tuner.core.table import TuningTable
from tuner.formats.nccl.csv_rules import MAX_ROWS
from tuner.formats.nccl.emitter import emit_sparse

SOURCE = Path(__file__).with_name("plugin.c")
HEADER = Path(__file__).with_name("tuner_nccl.h")  # for programs that ask for each call
LIBRARY_FILE = "libnccl-tuner-tuner.so"  # NCCL_TUNER_PLUGIN=tuner is short for this name
RULES_FILE = "rules.csv"  # the same name as in plugin.c
COMPILER_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
MAX_PATH_BYTES = 254  # NCCL cuts longer values of NCCL_TUNER_PLUGIN (plugin_open.cc)
TIMEOUT_S = 120  # for the compiler, and for the trial
FORCING_VARIABLES = ("NCCL_ALGO", "NCCL_PROTO")  # the plugin does nothing where these are set
_FNV_START = 0xCBF29CE484222325  # offset basis of 64-bit FNV-1a
_FNV_PRIME = 0x100000001B3


@dataclass(frozen=True)
class Installed:
    """The result of `install`.

    digest          of the rules, as the plugin logs it on every rank
    n_rules         number of rules
    tested_calls    number of calls that the compiled plugin decided as the rules say
    """

    library: Path
    rules: Path
    digest: str
    n_rules: int
    tested_calls: int


def fnv1a(data: bytes) -> str:
    """Return the 64-bit FNV-1a digest in hexadecimal."""
    digest = _FNV_START
    for byte in data:
        digest = (digest ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def with_digest_header(rows: str) -> str:
    """Return rows under the header by which the plugin detects lost or changed rows."""
    number = sum(not line.startswith("#") for line in rows.splitlines())
    if number > MAX_ROWS:
        raise InputError(f"the table has {number} rules for NCCL: the plugin takes {MAX_ROWS}")
    return f"# tuner nccl rules 1: {number} rows, fnv1a64 {fnv1a(rows.encode())}\n{rows}"


def install(table: TuningTable, folder: Path) -> Installed:
    """Compile the plugin into `folder`, with its rules and header, and try it in a child process.

    Raises InputError when a rule cannot be expressed, the folder holds other rules, there is no
    C compiler, or the plugin does not follow the rules; the folder is then left unchanged.
    """
    text = with_digest_header(emit_sparse(table))
    library, rules = folder.absolute() / LIBRARY_FILE, folder.absolute() / RULES_FILE
    _require_installable(library, rules, text)
    with tempfile.TemporaryDirectory(dir=_existing_ancestor(folder.absolute())) as place:
        made = Path(place) / LIBRARY_FILE
        compile_plugin(made)
        (made.parent / RULES_FILE).write_text(text)
        checked = _run_trial(made)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(rules, text)
        write_atomically(folder / HEADER.name, HEADER.read_text())
        write_atomically(library, made.read_bytes(), 0o755)
    header = text.partition("\n")[0].split()
    return Installed(library, rules, header[-1], int(header[5]), checked)


def _require_installable(library: Path, rules: Path, text: str) -> None:
    """Raise InputError for a folder that cannot be written or already has other rules."""
    require_writable_dir(library.parent)
    if len(os.fsencode(library)) > MAX_PATH_BYTES:
        raise InputError(
            f"{library}: longer than {MAX_PATH_BYTES} bytes, which NCCL would cut: choose another"
            " folder"
        )
    content = _read_if_exists(rules)
    if content not in (None, text.encode()):
        if not _has_valid_digest(content):
            raise InputError(
                f"{rules} was changed since it was installed, so ranks leave all calls to NCCL:"
                " delete the folder and install again"
            )
        raise InputError(
            f"{rules} holds other rules: ranks that start while they are replaced would read"
            " different ones and hang; choose another folder, or delete this one when no job uses"
            " it"
        )


def _has_valid_digest(content: bytes) -> bool:
    """Return whether the rules match the digest in their first line."""
    header, _, rows = content.partition(b"\n")
    return header.split()[-1:] == [fnv1a(rows).encode()]


def _read_if_exists(rules: Path) -> bytes | None:
    """Return the content of the rules file, None if there is none; raises InputError."""
    try:
        return rules.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as reason:
        raise InputError(f"{rules}: cannot be read: {reason.strerror}") from None


def _existing_ancestor(folder: Path) -> Path:
    """Return the folder, or its nearest ancestor that exists."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def compiler_command() -> list[str]:
    """Return the C compiler's command: that of CC, else the first compiler found.

    Raises InputError where there is none.
    """
    wanted = shlex.split(os.environ.get("CC", ""))
    names = wanted[:1] or COMPILERS
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        said = f"CC={wanted[0]}" if wanted else f"any of {', '.join(COMPILERS)}"
        raise InputError(
            f"the plugin must be compiled, and there is no C compiler ({said}): install gcc, or run"
            " this where there is one and copy the folder"
        )
    return [found, *wanted[1:]]


def compile_plugin(target: Path) -> None:
    """Compile the plugin; raises InputError with the compiler's message where that fails."""
    command = [*compiler_command(), *COMPILER_FLAGS, "-o", str(target), str(SOURCE), "-ldl"]
    run_compiler(command, f"the plugin was not compiled by {command[0]}")


def _run_trial(library: Path) -> int:
    """Return how many calls the compiled plugin decides as the rules beside it say.

    It runs in a child process, which a bad build may crash. Raises InputError for another decision.
    """
    environment = {
        name: value
        for name, value in own_module_environment().items()
        if name not in FORCING_VARIABLES
    }
    command = own_module_command("tuner.formats.nccl.plugin_trial", str(library))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environment
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"the compiled plugin did not answer within {TIMEOUT_S} s") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
        raise InputError(f"the compiled plugin does not follow the rules: {said[-1]}")
    return int(done.stdout)


def usage_command(installed: Installed) -> str:
    """Return the command that makes programs on NCCL and RCCL follow the rules."""
    return f"export NCCL_TUNER_PLUGIN={shlex.quote(str(installed.library))}"


def installation_summary(installed: Installed) -> str:
    """Return one sentence on what was installed and tried."""
    return (
        f"{installed.rules}: {plural(installed.n_rules, 'rule')}; the compiled plugin followed them"
        f" in {plural(installed.tested_calls, 'test call')}"
    )
