"""The three C programs of an emulated cluster, compiled when they are first needed.

The compiled programs are cached in `emulation-DIGEST` in tuner's cache directory; the digest is
that of the sources, so that an old program is never used with other sources.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path

from tuner.base.errors import InputError
from tuner.runtime import table_cache

SOURCE_DIR = Path(__file__).parent
PROGRAMS = {"switch": (), "netns_exec": (), "netns_hold.so": ("-shared", "-fPIC")}
COMPILERS = ("cc", "gcc", "clang")
COMPILE_TIMEOUT_S = 120.0  # for compiling one of them


def find_compiler() -> str | None:
    """Return the path of a C compiler; None without one."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def build_programs() -> Path:
    """Return the directory of the compiled programs, after compiling those not cached.

    Raises InputError without a compiler, when compiling fails and when the cache is not writable.
    """
    target = table_cache.cache_directory() / f"emulation-{_digest()}"
    if all((target / name).exists() for name in PROGRAMS):
        return target
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as shelf:
            for name, options in PROGRAMS.items():
                made = Path(shelf, name)
                _compile(_source(name), made, options)
                made.replace(target / name)
    except OSError as reason:
        raise InputError(
            f"{target}: the programs of emulated clusters cannot be kept there:"
            f" {reason.strerror}; name another directory in TUNER_CACHE"
        ) from None
    return target


def _source(program: str) -> Path:
    return (SOURCE_DIR / program).with_suffix(".c")


def _digest() -> str:
    """Return a digest of all sources and of the machine they are compiled for."""
    content = sha256(os.uname().machine.encode())
    for name, options in PROGRAMS.items():
        content.update(" ".join(options).encode() + _source(name).read_bytes())
    return content.hexdigest()[:16]


def _compile(source: Path, made: Path, options: tuple[str, ...]) -> None:
    command = find_compiler()
    if command is None:
        raise InputError("an emulated cluster needs a C compiler: install gcc or clang")
    try:
        built = subprocess.run(
            [command, "-O2", *options, "-o", made, source],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMPILE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{command} did not compile {source} in {COMPILE_TIMEOUT_S:g} s") from None
    if built.returncode:
        first = next(iter(built.stderr.splitlines()), "no reason given")
        raise InputError(f"{command} cannot compile {source}: {first}")
