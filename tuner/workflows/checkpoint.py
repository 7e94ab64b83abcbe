"""Skip stages whose inputs are unchanged, so that an interrupted run continues where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.base.atomic_io import write_atomically
from tuner.base.code_digest import code_version
from tuner.base.errors import InputError

CHECKPOINT_FILE = "stages.json"
CODE_VERSION = code_version()


class StageCheckpoint:
    """A record, in `out/stages.json`, of the code and the inputs that each finished stage had.

    Raises InputError when the file cannot be read or written.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._path = out / CHECKPOINT_FILE
        self._input_digests = self._read()
        self._write()

    def is_done(self, name: str, inputs: Sequence[Path | str], outputs: Sequence[Path]) -> bool:
        """Return whether the stage ran with these inputs and all its outputs still exist."""
        same = self._input_digests.get(name) == self._digest(inputs)
        return same and all(path.is_file() for path in outputs)

    def run(
        self,
        name: str,
        inputs: Sequence[Path | str],
        outputs: Sequence[Path],
        make: Callable[[], None],
    ) -> bool:
        """Run `make` unless the stage is done; return whether it ran."""
        if self.is_done(name, inputs, outputs):
            return False
        make()
        self._input_digests[name] = self._digest(inputs)
        self._write()
        return True

    def _digest(self, inputs: Sequence[Path | str]) -> str:
        digest = hashlib.sha256(CODE_VERSION.encode())
        for entry in inputs:
            content = entry.read_bytes() if isinstance(entry, Path) else entry.encode()
            digest.update(hashlib.sha256(content).digest())
        return digest.hexdigest()

    def _read(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, TypeError, ValueError) as reason:
            raise InputError(f"{self._path}: cannot be read ({reason}); delete it") from None

    def _write(self) -> None:
        write_atomically(self._path, json.dumps(self._input_digests, indent=1) + "\n")
