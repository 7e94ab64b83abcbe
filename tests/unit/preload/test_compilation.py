"""The preloaded library is not compiled where its compiler is missing, and the reason is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.preload.compilation import compile_library


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    mpicc = tmp_path / "mpicc"
    mpicc.write_text("#!/bin/sh\necho missing-cc -I/include -lmpi\n", encoding="utf-8")
    mpicc.chmod(0o755)
    expected = f"^{mpicc} starts missing-cc, which was not found on PATH: install it$"
    with pytest.raises(InputError, match=expected):
        compile_library(mpicc, tmp_path, tmp_path / "library.so")
