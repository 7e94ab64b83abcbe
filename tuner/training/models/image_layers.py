"""Builder of convolutional networks, which computes tensors and work from the spatial sizes.

The work counts the multiply-adds of convolutions and linear layers as two floating-point operations
each. It leaves out batch norms, activations and poolings, which are below 1 % of the operations.
The backward pass of a layer computes the gradients of its weights and of its input, each as much
work as the forward pass; the first layer computes the gradient of its weights alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.training.model import Model, ModelLayer, Tensor
from tuner.training.models.layer_tensors import linear_tensors, norm_tensors

Sides = int | tuple[int, int]  # height and width; one number where they are equal


@dataclass(frozen=True)
class Maps:
    """The feature maps between two layers: `channels` of `height` x `width` elements."""

    channels: int
    height: int
    width: int

    @property
    def elements(self) -> int:
        return self.channels * self.height * self.width


def join(*branches: Maps) -> Maps:
    """Return the maps of branches that are concatenated along the channels."""
    return Maps(sum(maps.channels for maps in branches), branches[0].height, branches[0].width)


def pool(maps: Maps, kernel: int, stride: int, padding: int = 0, ceil: bool = False) -> Maps:
    """Return the maps after a pooling.

    ceil    round the sides up, as Caffe does, where the last window is partly outside
    """
    height, width = (
        _count_windows(side, kernel, stride, padding, ceil) for side in (maps.height, maps.width)
    )
    return Maps(maps.channels, height, width)


def pool_globally(maps: Maps) -> Maps:
    """Return the maps after an average over each of them."""
    return Maps(maps.channels, 1, 1)


def _count_windows(side: int, kernel: int, stride: int, padding: int, ceil: bool = False) -> int:
    rest = side + 2 * padding - kernel
    return (-(-rest // stride) if ceil else rest // stride) + 1


def _pair(sides: Sides) -> tuple[int, int]:
    return sides if isinstance(sides, tuple) else (sides, sides)


@dataclass
class ImageNetwork:
    """A convolutional network to which layers are added in the order of registration.

    bias    whether convolutions have a bias
    norm    whether a batch norm, with the tensors `NAME.norm.weight` and `.bias`, follows each
            convolution; it belongs to the layer of the convolution
    """

    bias: bool = True
    norm: bool = False
    layers: list[ModelLayer] = field(default_factory=list)

    def convolution(
        self,
        name: str,
        maps: Maps,
        channels: int,
        kernel: Sides,
        stride: int = 1,
        padding: Sides = 0,
        groups: int = 1,
    ) -> Maps:
        """Add a convolution and return its output.

        groups      groups of channels that are convolved separately; a group of one input channel
                    makes a depthwise convolution
        """
        (rows, columns), (pad_rows, pad_columns) = _pair(kernel), _pair(padding)
        output = Maps(
            channels,
            _count_windows(maps.height, rows, stride, pad_rows),
            _count_windows(maps.width, columns, stride, pad_columns),
        )
        weights = channels * (maps.channels // groups) * rows * columns
        tensors = [Tensor(f"{name}.weight", weights)]
        if self.bias:
            tensors.append(Tensor(f"{name}.bias", channels))
        if self.norm:
            tensors += norm_tensors(f"{name}.norm", channels)
        self._add(name, weights * output.height * output.width, tensors, output)
        return output

    def linear(self, name: str, maps: Maps, outputs: int) -> Maps:
        """Add a linear layer with a bias over all elements and return its output."""
        output = Maps(outputs, 1, 1)
        tensors = linear_tensors(name, maps.elements, outputs)
        self._add(name, maps.elements * outputs, tensors, output)
        return output

    def batch_norm(self, name: str, maps: Maps) -> Maps:
        """Add a batch norm that no convolution precedes and return its output."""
        self._add(name, 0, norm_tensors(name, maps.channels), maps)
        return maps

    def _add(self, name: str, multiply_adds: int, tensors: list[Tensor], output: Maps) -> None:
        forward = 2.0 * multiply_adds
        backward = 2 * forward if self.layers else forward
        self.layers.append(ModelLayer(name, forward, backward, tuple(tensors), output.elements))

    def model(self, name: str) -> Model:
        return Model(name, tuple(self.layers))
