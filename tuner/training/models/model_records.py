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

from typing import Any

from tuner.base.errors import InputError, shortened_repr
from tuner.base.file_settings import declared_settings, one_of, read_settings, require_keys
from tuner.training.model import Model
from tuner.training.models.transformers import Architecture, bert, gpt, llama

KINDS = {"gpt": gpt, "llama": llama, "mixtral": llama, "bert": bert}
_KEYS_OF_LLAMA = {"kv_heads", "experts", "active_experts"}
_LAYERS_OF_EXPERTS_LIMIT = 100_000  # experts of all blocks, for which a model has tensors
_MAX_NAME_CHARACTERS = 100


def model_from_record(record: Any) -> Model:
    """Return the transformer that a record describes, in the form of the module's docstring.

    Raises InputError naming the key for a record of another form.
    """
    if not isinstance(record, dict):
        raise InputError(
            f"model: expected a mapping such as kind: llama, got {shortened_repr(record)}"
        )
    kind = one_of(tuple(KINDS)).read("model: kind", record.get("kind"))
    name = record.get("name", kind)
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARACTERS:
        raise InputError(
            f"model: name must be text of at most {_MAX_NAME_CHARACTERS} characters,"
            f" got {shortened_repr(name)}"
        )
    foreign = {"positions"} if KINDS[kind] is llama else _KEYS_OF_LLAMA
    known = declared_settings(Architecture).keys() - foreign
    require_keys(f"model {kind}", record, {"kind", "name", *known}, set())
    numbers = read_settings(Architecture, record, "model", {"kind", "name"})
    return KINDS[kind](name, _checked_architecture(kind, Architecture(**numbers)))


def _checked_architecture(kind: str, architecture: Architecture) -> Architecture:
    """Return the numbers; raise InputError unless they go together."""
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
