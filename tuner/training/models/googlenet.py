"""GoogLeNet, with and without its auxiliary classifiers."""

from __future__ import annotations

from tuner.training.model import Model
from tuner.training.models.image_layers import ImageNetwork, Maps, join, pool, pool_globally
from tuner.training.models.plain_cnns import CLASSES, IMAGE

# Channels of 1x1, 3x3 after its reduction, 5x5 after its reduction, and the projection of the
# pooling; Szegedy et al. (arXiv 1409.4842), table 1
_MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
_POOLED_AFTER = ("3b", "4e")
_AUXILIARY_AFTER = ("4a", "4d")


def googlenet(auxiliary: bool = False) -> Model:
    """Return GoogLeNet as published: biases, no batch norm.

    auxiliary   whether it has the two auxiliary classifiers, which are registered last

    Source: Szegedy et al., Going deeper with convolutions (arXiv 1409.4842)
    """
    network = ImageNetwork()
    maps = network.convolution("conv1", IMAGE, 64, 7, stride=2, padding=3)
    maps = network.convolution("conv2.reduce", pool(maps, 3, 2, ceil=True), 64, 1)
    maps = network.convolution("conv2", maps, 192, 3, padding=1)
    maps = pool(maps, 3, 2, ceil=True)
    branched: list[Maps] = []
    for name, channels in _MODULES.items():
        maps = _inception(network, name, maps, channels)
        if name in _AUXILIARY_AFTER:
            branched.append(maps)
        if name in _POOLED_AFTER:
            maps = pool(maps, 3, 2, ceil=True)
    network.linear("classifier", pool_globally(maps), CLASSES)
    for number, branch in enumerate(branched if auxiliary else (), 1):
        _auxiliary_classifier(network, f"aux{number}", branch)
    return network.model("googlenet_aux" if auxiliary else "googlenet")


def _inception(network: ImageNetwork, name: str, maps: Maps, channels: tuple[int, ...]) -> Maps:
    """Add an inception module; `channels` as in _MODULES."""
    single, reduce3, triple, reduce5, quintuple, projection = channels
    branch1 = network.convolution(f"{name}.1x1", maps, single, 1)
    branch2 = network.convolution(f"{name}.3x3.reduce", maps, reduce3, 1)
    branch2 = network.convolution(f"{name}.3x3", branch2, triple, 3, padding=1)
    branch3 = network.convolution(f"{name}.5x5.reduce", maps, reduce5, 1)
    branch3 = network.convolution(f"{name}.5x5", branch3, quintuple, 5, padding=2)
    branch4 = network.convolution(f"{name}.pool", maps, projection, 1)
    return join(branch1, branch2, branch3, branch4)


def _auxiliary_classifier(network: ImageNetwork, name: str, maps: Maps) -> None:
    maps = network.convolution(f"{name}.conv", pool(maps, 5, 3), 128, 1)
    maps = network.linear(f"{name}.fc1", maps, 1024)
    network.linear(f"{name}.fc2", maps, CLASSES)
