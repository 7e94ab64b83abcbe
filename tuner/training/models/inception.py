"""Inception v3 and v4, on images of 299 x 299."""

from __future__ import annotations

from tuner.training.model import Model
from tuner.training.models.image_layers import ImageNetwork, Maps, Sides, join, pool, pool_globally
from tuner.training.models.plain_cnns import CLASSES

_IMAGE = Maps(3, 299, 299)
_ROW7 = (1, 7)
_COLUMN7 = (7, 1)
_ROW3 = (1, 3)
_COLUMN3 = (3, 1)
Step = tuple[int, Sides]  # channels and kernel of a convolution that keeps the spatial size


def _network() -> ImageNetwork:
    return ImageNetwork(bias=False, norm=True)


def _chain(network: ImageNetwork, name: str, maps: Maps, *steps: Step) -> Maps:
    """Add convolutions one after the other, `name` with numbers from 1 where they are several."""
    for number, (channels, kernel) in enumerate(steps, 1):
        step_name = f"{name}_{number}" if len(steps) > 1 else name
        rows, columns = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = (rows // 2, columns // 2)
        maps = network.convolution(step_name, maps, channels, kernel, padding=padding)
    return maps


def _halve(network: ImageNetwork, name: str, maps: Maps, channels: int) -> Maps:
    """Add a 3 x 3 convolution with stride 2 and without padding."""
    return network.convolution(name, maps, channels, 3, stride=2)


def inception_v3(auxiliary: bool = False) -> Model:
    """Return Inception v3.

    auxiliary   whether it has the auxiliary classifier

    Source: Szegedy et al. (arXiv 1512.00567); order of registration as in torchvision
    """
    network = _network()
    maps = network.convolution("conv1a", _IMAGE, 32, 3, stride=2)
    maps = network.convolution("conv2a", maps, 32, 3)
    maps = network.convolution("conv2b", maps, 64, 3, padding=1)
    maps = network.convolution("conv3b", pool(maps, 3, 2), 80, 1)
    maps = network.convolution("conv4a", maps, 192, 3)
    maps = pool(maps, 3, 2)
    for name, projection in (("5b", 32), ("5c", 64), ("5d", 64)):
        maps = _module_a(network, name, maps, projection)
    maps = _reduction_a(network, "6a", maps, 64, 96, 96)
    for name, inner in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        maps = _module_b(network, name, maps, inner)
    if auxiliary:
        _auxiliary_head(network, maps)
    maps = _reduction_b(network, "7a", maps, 320, 192, 192)
    for name in ("7b", "7c"):
        maps = _module_c(network, name, maps)
    network.linear("fc", pool_globally(maps), CLASSES)
    return network.model("inception_v3_aux" if auxiliary else "inception_v3")


def _module_a(network: ImageNetwork, name: str, maps: Maps, projection: int) -> Maps:
    return join(
        _chain(network, f"{name}.1x1", maps, (64, 1)),
        _chain(network, f"{name}.5x5", maps, (48, 1), (64, 5)),
        _chain(network, f"{name}.3x3dbl", maps, (64, 1), (96, 3), (96, 3)),
        _chain(network, f"{name}.pool", maps, (projection, 1)),
    )


def _reduction_a(network: ImageNetwork, name: str, maps: Maps, *channels: int) -> Maps:
    """Add the first module that halves the sides; `channels` of its three-step branch."""
    first, second, third = channels
    single = _halve(network, f"{name}.3x3", maps, 384)
    double = _chain(network, f"{name}.3x3dbl", maps, (first, 1), (second, 3))
    return join(single, _halve(network, f"{name}.3x3dbl_3", double, third), pool(maps, 3, 2))


def _module_b(network: ImageNetwork, name: str, maps: Maps, inner: int) -> Maps:
    single: tuple[Step, ...] = ((inner, 1), (inner, _ROW7), (192, _COLUMN7))
    double: tuple[Step, ...] = ((inner, 1), (inner, _COLUMN7), (inner, _ROW7))
    return join(
        _chain(network, f"{name}.1x1", maps, (192, 1)),
        _chain(network, f"{name}.7x7", maps, *single),
        _chain(network, f"{name}.7x7dbl", maps, *double, (inner, _COLUMN7), (192, _ROW7)),
        _chain(network, f"{name}.pool", maps, (192, 1)),
    )


def _auxiliary_head(network: ImageNetwork, maps: Maps) -> None:
    maps = network.convolution("aux.conv0", pool(maps, 5, 3), 128, 1)
    maps = network.convolution("aux.conv1", maps, 768, 5)
    network.linear("aux.fc", pool_globally(maps), CLASSES)


def _reduction_b(network: ImageNetwork, name: str, maps: Maps, single: int, *channels: int) -> Maps:
    """Add the second module that halves the sides.

    single      output channels of the branch of two steps
    channels    of the branch of four steps: inner ones, and those of its last two steps
    """
    inner, output = channels
    short = _chain(network, f"{name}.3x3_1", maps, (192, 1))
    short = _halve(network, f"{name}.3x3_2", short, single)
    long = _chain(network, f"{name}.7x7x3", maps, (inner, 1), (inner, _ROW7), (output, _COLUMN7))
    return join(short, _halve(network, f"{name}.7x7x3_4", long, output), pool(maps, 3, 2))


def _module_c(network: ImageNetwork, name: str, maps: Maps) -> Maps:
    single = _chain(network, f"{name}.1x1", maps, (320, 1))
    triple = _split(network, f"{name}.3x3", _chain(network, f"{name}.3x3_1", maps, (384, 1)), 384)
    double = _chain(network, f"{name}.3x3dbl", maps, (448, 1), (384, 3))
    double = _split(network, f"{name}.3x3dbl", double, 384)
    return join(single, triple, double, _chain(network, f"{name}.pool", maps, (192, 1)))


def _split(network: ImageNetwork, name: str, maps: Maps, channels: int) -> Maps:
    """Add a 1 x 3 and a 3 x 1 convolution side by side."""
    row = _chain(network, f"{name}.1x3", maps, (channels, _ROW3))
    return join(row, _chain(network, f"{name}.3x1", maps, (channels, _COLUMN3)))


def inception_v4() -> Model:
    """Return Inception v4.

    Source: Szegedy et al. (arXiv 1602.07261), figures 3 to 9; order of registration as in timm
    """
    network = _network()
    maps = _stem(network)
    for number in range(1, 5):
        maps = _module_a4(network, f"a{number}", maps)
    maps = _reduction_a(network, "reduction_a", maps, 192, 224, 256)
    for number in range(1, 8):
        maps = _module_b4(network, f"b{number}", maps)
    maps = _reduction_b(network, "reduction_b", maps, 192, 256, 320)
    for number in range(1, 4):
        maps = _module_c4(network, f"c{number}", maps)
    network.linear("fc", pool_globally(maps), CLASSES)
    return network.model("inception_v4")


def _stem(network: ImageNetwork) -> Maps:
    maps = network.convolution("stem.conv1", _IMAGE, 32, 3, stride=2)
    maps = network.convolution("stem.conv2", maps, 32, 3)
    maps = network.convolution("stem.conv3", maps, 64, 3, padding=1)
    maps = join(pool(maps, 3, 2), _halve(network, "stem.conv4", maps, 96))
    short = _chain(network, "stem.short_1", maps, (64, 1))
    short = network.convolution("stem.short_2", short, 96, 3)
    long = _chain(network, "stem.long", maps, (64, 1), (64, _ROW7), (64, _COLUMN7))
    maps = join(short, network.convolution("stem.long_4", long, 96, 3))
    return join(_halve(network, "stem.conv5", maps, 192), pool(maps, 3, 2))


def _module_a4(network: ImageNetwork, name: str, maps: Maps) -> Maps:
    return join(
        _chain(network, f"{name}.1x1", maps, (96, 1)),
        _chain(network, f"{name}.3x3", maps, (64, 1), (96, 3)),
        _chain(network, f"{name}.3x3dbl", maps, (64, 1), (96, 3), (96, 3)),
        _chain(network, f"{name}.pool", maps, (96, 1)),
    )


def _module_b4(network: ImageNetwork, name: str, maps: Maps) -> Maps:
    single: tuple[Step, ...] = ((192, 1), (224, _ROW7), (256, _COLUMN7))
    double: tuple[Step, ...] = ((192, 1), (192, _COLUMN7), (224, _ROW7))
    return join(
        _chain(network, f"{name}.1x1", maps, (384, 1)),
        _chain(network, f"{name}.7x7", maps, *single),
        _chain(network, f"{name}.7x7dbl", maps, *double, (224, _COLUMN7), (256, _ROW7)),
        _chain(network, f"{name}.pool", maps, (128, 1)),
    )


def _module_c4(network: ImageNetwork, name: str, maps: Maps) -> Maps:
    single = _chain(network, f"{name}.1x1", maps, (256, 1))
    triple = _split(network, f"{name}.3x3", _chain(network, f"{name}.3x3_1", maps, (384, 1)), 256)
    double = _chain(network, f"{name}.3x3dbl", maps, (384, 1), (448, _COLUMN3), (512, _ROW3))
    double = _split(network, f"{name}.3x3dbl", double, 256)
    return join(single, triple, double, _chain(network, f"{name}.pool", maps, (256, 1)))
