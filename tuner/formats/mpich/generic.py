"""The selection rules that an MPICH library decides with by itself, read from its binary."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tuner.base.errors import InputError
from tuner.formats.mpich.layers import DEVICE, LAYERS, MPIR, SHARED_MEMORY, Layer
from tuner.formats.mpich.parsing import parse
from tuner.formats.mpich.selection import Tree


@dataclass(frozen=True)
class GenericTrees:
    """The trees of a library's layers; None for a layer that it lacks."""

    mpir: Tree
    device: Tree | None = None
    shared_memory: Tree | None = None


def read_generic_tree(libmpi: Path, layer: Layer = MPIR) -> Tree:
    """Return the complete tree that a layer of an MPICH library decides with by itself.

    Raises InputError when its binary holds none for this layer.
    """
    text = _embedded_rules(libmpi).get(layer)
    if text is not None:
        return parse(text, layer=layer)
    if layer is MPIR:
        raise InputError(
            f"{libmpi}: holds no collective selection rules; give the libmpi of MPICH 3.4 or later"
        )
    raise InputError(
        f"{libmpi}: this library has no {layer.name} with a tuning file ({layer.variable}): use the"
        " file of format `mpich` alone"
    )


def read_generic_trees(libmpi: Path) -> GenericTrees:
    """Return the trees of all layers that a library has.

    Raises InputError as `read_generic_tree` does.
    """
    known = _embedded_rules(libmpi)
    device, shared_memory = (
        parse(known[layer], layer=layer) if layer in known else None
        for layer in (DEVICE, SHARED_MEMORY)
    )
    return GenericTrees(read_generic_tree(libmpi), device, shared_memory)


def _embedded_rules(libmpi: Path) -> dict[Layer, str]:
    """Return the rules of each layer: C strings in the binary, told apart by their leaves."""
    try:
        binary = libmpi.read_bytes()
    except OSError as reason:
        raise InputError(f"{libmpi}: cannot be read: {reason.strerror}") from None
    found: dict[Layer, str] = {}
    for match in re.finditer(rb'\{\s*"collective=[^\0]*', binary):
        for layer in LAYERS:
            if layer.leaf_prefix.encode() in match[0]:
                found.setdefault(layer, match[0].decode(errors="replace"))
    return {layer: text for layer, text in found.items() if layer.variable.encode() in binary}
