"""The compilation of the preloaded library for the user's MPI, once for each."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tuner.base.code_digest import DIGITS, code_digest
from tuner.base.compiler import run_compiler
from tuner.base.errors import InputError
from tuner.mpi_libraries.products import identify
from tuner.preload import generated
from tuner.runtime.table_cache import cache_directory

SOURCES = Path(__file__).with_name("libtuner")
FLAGS = (
    *("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden"),
    *("-Wall", "-Wextra"),
)
LIBRARY_FILE, VERSION_FILE = "libtuner.so", "version"
# Ask the MPI that a library is linked to. It is done in a process of its own, which MPI may end.
_VERSION_PROGRAM = """
import ctypes, sys
text, length = ctypes.create_string_buffer(1 << 14), ctypes.c_int()
ctypes.CDLL(sys.argv[1]).MPI_Get_library_version(text, ctypes.byref(length))
print(text.value.decode(errors="replace"))
"""


@dataclass(frozen=True)
class PreloadLibrary:
    """A compiled library.

    library     the MPI that it was compiled for, such as `openmpi 5.0.11`
    """

    path: Path
    library: str


def build_library(compiler: Path) -> PreloadLibrary:
    """Return the library for an MPI's `mpicc`, compiled where this user has none yet.

    Raises InputError where it cannot be compiled or loaded, or the MPI is not known.
    """
    place = cache_directory() / f"preload-{_digest(compiler)}"
    if not (place / VERSION_FILE).is_file():
        _build_into(place, compiler)
    try:
        said = (place / VERSION_FILE).read_text(encoding="utf-8")
    except OSError as reason:
        raise InputError(f"{place} cannot be read: {reason.strerror}") from None
    return PreloadLibrary(place / LIBRARY_FILE, identify(said).library)


def _digest(compiler: Path) -> str:
    """Return a digest of the compiler with its own flags, of its MPI, and of our sources."""
    shown = run_compiler([str(compiler), "-show"], f"{compiler} cannot be used")
    status = compiler.resolve().stat()
    told = f"{compiler.resolve()} {status.st_size} {status.st_mtime_ns} {shown} {code_digest()}"
    return hashlib.sha256(told.encode()).hexdigest()[:DIGITS]


def _build_into(place: Path, compiler: Path) -> None:
    """Compile the library into a folder, which appears when all is in it."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix="preload-") as work:
            made = Path(work) / "made"
            made.mkdir()
            compile_library(compiler, Path(work), made / LIBRARY_FILE)
            asked = [sys.executable, "-c", _VERSION_PROGRAM, str(made / LIBRARY_FILE)]
            said = run_compiler(asked, f"what {compiler} makes cannot be loaded")
            (made / VERSION_FILE).write_text(said, encoding="utf-8")
            if not (place / VERSION_FILE).is_file():  # ranks may already load another's
                shutil.rmtree(place, ignore_errors=True)
            made.rename(place)
    except OSError as reason:
        if not (place / VERSION_FILE).is_file():  # unless another process has made it meanwhile
            raise InputError(f"{place} cannot be written: {reason.strerror}") from None


def compile_library(compiler: Path, work: Path, target: Path, flags: tuple[str, ...] = ()) -> None:
    """Compile the library from our sources and those that are generated into `work`.

    flags   further flags of the compiler

    Raises InputError with the compiler's message where that fails, and where it is missing.
    """
    shown = run_compiler([str(compiler), "-show"], f"{compiler} cannot be used")
    needed = shlex.split(shown)[0]
    if shutil.which(needed) is None:
        raise InputError(f"{compiler} starts {needed}, which was not found on PATH: install it")
    (work / "generated.h").write_text(generated.header())
    (work / "wrappers.c").write_text(generated.wrappers())
    sources = [*sorted(SOURCES.glob("*.c")), work / "wrappers.c"]
    command = [str(compiler), *FLAGS, *flags, f"-I{work}", f"-I{SOURCES}"]
    command += [*map(str, sources), "-o", str(target), "-ldl", "-lpthread"]
    run_compiler(command, f"{compiler} cannot compile the library that is loaded into ranks")
