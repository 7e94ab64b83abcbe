"""Convolutional networks with shortcuts: ResNet and DenseNet."""

from __future__ import annotations

from tuner.training.model import Model
from tuner.training.models.image_layers import ImageNetwork, Maps, join, pool, pool_globally
from tuner.training.models.plain_cnns import CLASSES, IMAGE

_RESNET_STAGES = {  # blocks of each stage; He et al. (arXiv 1512.03385), table 1
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
_EXPANSION = 4  # output channels of a bottleneck block over its inner channels
_DENSENET_BLOCKS = (6, 12, 24, 16)  # DenseNet-121; Huang et al. (arXiv 1608.06993), table 1
_GROWTH = 32  # channels that each layer of DenseNet-121 adds


def resnet(depth: int) -> Model:
    """Return ResNet with 50, 101 or 152 layers, with the stride in the 3 x 3 convolutions.

    Source: He et al. (arXiv 1512.03385); the stride as in torchvision
    """
    network = ImageNetwork(bias=False, norm=True)
    maps = network.convolution("conv1", IMAGE, 64, 7, stride=2, padding=3)
    maps = pool(maps, 3, 2, padding=1)
    for stage, count in enumerate(_RESNET_STAGES[depth]):
        for block in range(count):
            stride = 2 if stage and not block else 1
            name = f"layer{stage + 1}.{block}"
            maps = _bottleneck(network, name, maps, 64 << stage, stride)
    network.linear("fc", pool_globally(maps), CLASSES)
    return network.model(f"resnet{depth}")


def _bottleneck(network: ImageNetwork, name: str, maps: Maps, inner: int, stride: int) -> Maps:
    """Add a bottleneck block, with a projection of the shortcut where the shape changes."""
    output = network.convolution(f"{name}.conv1", maps, inner, 1)
    output = network.convolution(f"{name}.conv2", output, inner, 3, stride, padding=1)
    output = network.convolution(f"{name}.conv3", output, _EXPANSION * inner, 1)
    if output != maps:
        network.convolution(f"{name}.downsample", maps, output.channels, 1, stride)
    return output


def densenet121() -> Model:
    """Return DenseNet-121, whose batch norms precede the convolutions.

    Source: Huang et al. (arXiv 1608.06993); order of registration as in torchvision
    """
    network = ImageNetwork(bias=False)
    maps = network.convolution("conv0", IMAGE, 64, 7, stride=2, padding=3)
    maps = pool(network.batch_norm("norm0", maps), 3, 2, padding=1)
    for block, count in enumerate(_DENSENET_BLOCKS, 1):
        if block > 1:
            name = f"transition{block - 1}"
            network.batch_norm(f"{name}.norm", maps)
            maps = pool(network.convolution(f"{name}.conv", maps, maps.channels // 2, 1), 2, 2)
        for layer in range(1, count + 1):
            maps = _dense_layer(network, f"denseblock{block}.denselayer{layer}", maps)
    network.batch_norm("norm5", maps)
    network.linear("classifier", pool_globally(maps), CLASSES)
    return network.model("densenet121")


def _dense_layer(network: ImageNetwork, name: str, maps: Maps) -> Maps:
    """Add a layer that concatenates its output to its input."""
    network.batch_norm(f"{name}.norm1", maps)
    output = network.convolution(f"{name}.conv1", maps, 4 * _GROWTH, 1)
    network.batch_norm(f"{name}.norm2", output)
    return join(maps, network.convolution(f"{name}.conv2", output, _GROWTH, 3, padding=1))
