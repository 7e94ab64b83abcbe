"""Convolutional networks without branches: AlexNet, VGG and MobileNet."""

from __future__ import annotations

from tuner.training.model import Model
from tuner.training.models.image_layers import ImageNetwork, Maps, pool, pool_globally

IMAGE = Maps(3, 224, 224)
CLASSES = 1000
_VGG_STAGES = {  # convolutions of each stage; Simonyan and Zisserman (arXiv 1409.1556), table 1
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
_VGG_CHANNELS = (64, 128, 256, 512, 512)
# Channels and stride of the separable convolutions; Howard et al. (arXiv 1704.04861), table 1
_MOBILENET_BLOCKS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)


def alexnet() -> Model:
    """Return AlexNet on one GPU, as torchvision defines it.

    Source: Krizhevsky, One weird trick (arXiv 1404.5997)
    """
    network = ImageNetwork()
    maps = network.convolution("conv1", IMAGE, 64, 11, stride=4, padding=2)
    maps = network.convolution("conv2", pool(maps, 3, 2), 192, 5, padding=2)
    maps = network.convolution("conv3", pool(maps, 3, 2), 384, 3, padding=1)
    maps = network.convolution("conv4", maps, 256, 3, padding=1)
    maps = network.convolution("conv5", maps, 256, 3, padding=1)
    _fully_connected(network, pool(maps, 3, 2))
    return network.model("alexnet")


def alexnet_caffe() -> Model:
    """Return AlexNet as Caffe defines it: images of 227 x 227, some convolutions in two groups.

    Source: Krizhevsky et al., ImageNet Classification (2012); Caffe's bvlc_alexnet
    """
    network = ImageNetwork()
    maps = network.convolution("conv1", Maps(3, 227, 227), 96, 11, stride=4)
    maps = network.convolution("conv2", pool(maps, 3, 2), 256, 5, padding=2, groups=2)
    maps = network.convolution("conv3", pool(maps, 3, 2), 384, 3, padding=1)
    maps = network.convolution("conv4", maps, 384, 3, padding=1, groups=2)
    maps = network.convolution("conv5", maps, 256, 3, padding=1, groups=2)
    _fully_connected(network, pool(maps, 3, 2))
    return network.model("alexnet_caffe")


def vgg(depth: int) -> Model:
    """Return VGG with 16 or 19 layers, without batch norm.

    Source: Simonyan and Zisserman (arXiv 1409.1556)
    """
    network, maps = ImageNetwork(), IMAGE
    for channels, count in zip(_VGG_CHANNELS, _VGG_STAGES[depth], strict=True):
        for _ in range(count):
            name = f"conv{len(network.layers) + 1}"
            maps = network.convolution(name, maps, channels, 3, padding=1)
        maps = pool(maps, 2, 2)
    _fully_connected(network, maps)
    return network.model(f"vgg{depth}")


def _fully_connected(network: ImageNetwork, maps: Maps) -> None:
    """Add the three linear layers of AlexNet and VGG under the names of AlexNet."""
    maps = network.linear("fc6", maps, 4096)
    maps = network.linear("fc7", maps, 4096)
    network.linear("fc8", maps, CLASSES)


def mobilenet() -> Model:
    """Return MobileNet v1 of full width.

    Source: Howard et al., MobileNets (arXiv 1704.04861)
    """
    network = ImageNetwork(bias=False, norm=True)
    maps = network.convolution("conv1", IMAGE, 32, 3, stride=2, padding=1)
    for number, (channels, stride) in enumerate(_MOBILENET_BLOCKS, 2):
        depth = maps.channels
        maps = network.convolution(f"conv{number}.depthwise", maps, depth, 3, stride, 1, depth)
        maps = network.convolution(f"conv{number}.pointwise", maps, channels, 1)
    network.linear("fc", pool_globally(maps), CLASSES)
    return network.model("mobilenet")
