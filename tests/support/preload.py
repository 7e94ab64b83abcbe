"""Programs in C under the preloaded dispatcher."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tuner.core.table import TuningTable
from tuner.launch import Launcher
from tuner.preload.compilation import build_library
from tuner.preload.flat_table import write_flat_table

SUPPORT = Path(__file__).parent


def compiled(launcher: Launcher, source: str, folder: Path, compiler: Path | None = None) -> Path:
    """Return a program in this folder's C file `source`, compiled for the launcher's MPI.

    compiler    None: that of the launcher's MPI
    """
    target = folder / Path(source).stem
    command = [
        str(compiler or launcher.compiler),
        "-D_GNU_SOURCE",
        "-O2",
        "-o",
        str(target),
        str(SUPPORT / source),
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def device_driver(folder: Path, name: str) -> Path:
    """Compile device_driver.c to a library that programs find by the name of a driver."""
    target = folder / "driver.so"
    options = ["-shared", "-fPIC", f"-Wl,-soname,{name}"]
    subprocess.run(["cc", *options, SUPPORT / "device_driver.c", "-o", target], check=True)
    return target


def preload_environment(
    launcher: Launcher,
    table: TuningTable,
    folder: Path,
    compiler: Path | None = None,
    **others: str,
) -> Mapping[str, str]:
    """Return the variables of ranks that follow a table, whose flat file is `folder`/flat.

    compiler    for the library; None: that of the launcher's MPI
    """
    compiler = compiler or launcher.compiler
    assert compiler is not None
    assert write_flat_table(table, folder / "flat") == []
    return {
        "LD_PRELOAD": str(build_library(compiler).path),
        "TUNER_FLAT_TABLE": str(folder / "flat"),
        "TUNER_REPORT": str(folder / "report"),
        **launcher.profile.environment(launcher.profile.start_settings(launcher.version())),
        **others,
    }
