"""Trained tensors of common layers."""

from __future__ import annotations

from tuner.training.model import Tensor


def linear_tensors(name: str, inputs: int, outputs: int) -> list[Tensor]:
    """Return the weight and the bias of a linear layer."""
    return [Tensor(f"{name}.weight", inputs * outputs), Tensor(f"{name}.bias", outputs)]


def norm_tensors(name: str, width: int) -> list[Tensor]:
    """Return the scale and the shift of a batch norm or layer norm."""
    return [Tensor(f"{name}.weight", width), Tensor(f"{name}.bias", width)]
