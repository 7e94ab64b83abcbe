"""Models to train: their layers, with the tensors that training exchanges and the work of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tuner.base.errors import InputError

FLOPS, SECONDS = "flops", "seconds"


@dataclass(frozen=True)
class Tensor:
    """A trained tensor of a layer; its gradient has as many elements."""

    name: str
    elements: int


@dataclass(frozen=True)
class ModelLayer:
    """A layer of a model.

    forward         work of the forward pass per sample, in the work unit of the model
    backward        work of the backward pass per sample, in the same unit
    tensors         trained tensors in the order in which the model registers them
    activations     elements of the output per sample
    """

    name: str
    forward: float
    backward: float
    tensors: tuple[Tensor, ...] = ()
    activations: int = 0

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)


@dataclass(frozen=True)
class TransformerShape:
    """The numbers that decide what a transformer communicates.

    layers          transformer blocks
    width           elements of the hidden state of a token
    heads           attention heads
    sequence        tokens of a sample
    experts         experts of a block, 1 in a dense model
    active_experts  experts that work on a token
    tied            elements of the embedding that the head uses, too; 0 if it has weights of its
                    own
    """

    layers: int
    width: int
    heads: int
    sequence: int
    experts: int = 1
    active_experts: int = 1
    tied: int = 0


@dataclass(frozen=True)
class Model:
    """A model: layers in the order of the forward pass.

    unit            unit of the work of the layers: FLOPS (floating-point operations, two for a
                    multiplication with an addition) or SECONDS (as measured on one GPU)
    sample          what a sample is: "image" or "sequence"
    transformer     its shape if it is a transformer; the layers of a block are named `block N ...`

    Raises InputError for a model without layers or without any trained tensor, for work that is
    negative or zero in all layers, and for a tensor without elements.
    """

    name: str
    layers: tuple[ModelLayer, ...]
    unit: str = FLOPS
    sample: str = "image"
    transformer: TransformerShape | None = None

    def __post_init__(self) -> None:
        if not self.elements:
            raise InputError(f"model {self.name} needs a layer with a trained tensor")
        for layer in self.layers:
            if not (layer.forward >= 0 and layer.backward >= 0):
                raise InputError(
                    f"model {self.name}: layer {layer.name} has a negative work or time"
                )
            for tensor in layer.tensors:
                if tensor.elements < 1:
                    raise InputError(
                        f"model {self.name}: tensor {tensor.name} has {tensor.elements} elements"
                    )
        if not self.forward + self.backward > 0:
            raise InputError(f"model {self.name} needs a layer with work")

    @cached_property
    def elements(self) -> int:
        return sum(layer.elements for layer in self.layers)

    @cached_property
    def forward(self) -> float:
        return sum(layer.forward for layer in self.layers)

    @cached_property
    def backward(self) -> float:
        return sum(layer.backward for layer in self.layers)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All trained tensors in the order in which the model registers them."""
        return tuple(tensor for layer in self.layers for tensor in layer.tensors)
