"""Transformers of users, described by the numbers of their architecture.

kind: llama
name: my model          # optional
layers: 32
width: 4096
heads: 32
kv_heads: 8             # optional, `heads` if left out; llama and mixtral
feed_forward: 14336     # optional, 4 times `width` if left out
vocabulary: 128256
sequence: 4096
positions: 4096         # optional, `sequence` if left out; gpt and bert
experts: 8              # optional, 1 if left out; llama and mixtral
active_experts: 2       # optional, 1 if left out; llama and mixtral
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.training.model import Model
from tuner.training.models.transformers import Architecture, bert, gpt, llama

KINDS = {"gpt": gpt, "llama": llama, "mixtral": llama, "bert": bert}
_REQUIRED_KEYS = ("layers", "width", "heads", "sequence", "vocabulary")
_OPTIONAL_KEYS = {
    "gpt": ("feed_forward", "positions"),
    "bert": ("feed_forward", "positions"),
    "llama": ("feed_forward", "kv_heads", "experts", "active_experts"),
    "mixtral": ("feed_forward", "kv_heads", "experts", "active_experts"),
}
_LIMITS = {
    "layers": 2000,
    "experts": 1024,
    "active_experts": 1024,
    "heads": 10_000,
    "kv_heads": 10_000,
}
_SIZE_LIMIT = 10_000_000  # of widths, the vocabulary and the sequence
_LAYERS_OF_EXPERTS_LIMIT = 100_000  # experts of all blocks, for which a model has tensors
_MAX_NAME_CHARACTERS = 100


def model_from_record(record: Mapping[str, Any]) -> Model:
    """Return the transformer that a record describes, in the form of the module's docstring.

    Raises InputError naming the key for a record of another form.
    """
    if not isinstance(record, Mapping):
        raise InputError(f"model: expected a mapping such as kind: llama, got {_shown(record)}")
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"model: kind cannot be {_shown(kind)}; known: {', '.join(KINDS)}")
    name = record.get("name", kind)
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARACTERS:
        raise InputError(
            f"model: name must be text of at most {_MAX_NAME_CHARACTERS} characters,"
            f" got {_shown(name)}"
        )
    allowed = (*_REQUIRED_KEYS, *_OPTIONAL_KEYS[kind])
    unknown = [key for key in record if key not in ("kind", "name", *allowed)]
    if unknown:
        raise InputError(
            f"model: {kind} has no key {_shown(unknown[0])}; known: {', '.join(allowed)}"
        )
    missing = [key for key in _REQUIRED_KEYS if key not in record]
    if missing:
        raise InputError(f"model: {missing[0]} is missing: add it, such as {missing[0]}: 32")
    numbers = {key: _whole(key, record[key]) for key in allowed if key in record}
    return KINDS[kind](name, _architecture(kind, numbers))


def _architecture(kind: str, numbers: dict[str, int]) -> Architecture:
    """Return the numbers after checking how they go together."""
    numbers.setdefault("feed_forward", 4 * numbers["width"])
    architecture = Architecture(**numbers)
    _check_multiple("width", architecture.width, "heads", architecture.heads)
    if architecture.kv_heads:
        _check_multiple("heads", architecture.heads, "kv_heads", architecture.kv_heads)
    if architecture.positions and architecture.positions < architecture.sequence:
        raise InputError(
            f"model: positions ({architecture.positions}) must be at least sequence"
            f" ({architecture.sequence})"
        )
    if architecture.active_experts > architecture.experts:
        raise InputError(
            f"model: active_experts ({architecture.active_experts}) must be at most experts"
            f" ({architecture.experts})"
        )
    if kind == "mixtral" and architecture.experts == 1:
        raise InputError("model: mixtral needs experts of at least 2; without them use kind: llama")
    if architecture.layers * architecture.experts > _LAYERS_OF_EXPERTS_LIMIT:
        raise InputError(
            f"model: layers times experts must be at most {_LAYERS_OF_EXPERTS_LIMIT}, got"
            f" {architecture.layers * architecture.experts}"
        )
    return architecture


def _check_multiple(name: str, value: int, of: str, factor: int) -> None:
    if value % factor:
        raise InputError(f"model: {name} ({value}) must be a multiple of {of} ({factor})")


def _whole(key: str, value: Any) -> int:
    """Return an integer from 1 to the limit of the key."""
    limit = _LIMITS.get(key, _SIZE_LIMIT)
    if type(value) is not int or not 1 <= value <= limit:
        raise InputError(f"model: {key} must be an integer from 1 to {limit}, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return shortened_repr(value)
