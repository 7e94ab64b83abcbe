"""See `cupy.cuda.device`."""

from __future__ import annotations

from cupy.cuda import runtime


class Device:
    """One of the devices; the current one where none is named."""

    def __init__(self, device: int | None = None) -> None:
        self.id = runtime.getDevice() if device is None else device
        self._before: list[int] = []

    @property
    def pci_bus_id(self) -> str:
        return f"0000:{self.id:02x}:00.0"

    def use(self) -> None:
        runtime.setDevice(self.id)

    def __enter__(self) -> Device:
        self._before.append(runtime.getDevice())
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        runtime.setDevice(self._before.pop())


def get_device_id() -> int:
    return int(runtime.getDevice())
