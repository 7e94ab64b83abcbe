"""Compilation of the shared library that is preloaded into ranks to observe their algorithms."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")


def compile_shared_library(source: Path, directory: Path) -> Path | None:
    """Compile `source` and return the shared library; None if there is no working C compiler."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    target = directory.resolve() / f"{source.stem}.so"
    directory.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", target, source, "-ldl"],
        capture_output=True,
        check=False,
    )
    return target if built.returncode == 0 else None
