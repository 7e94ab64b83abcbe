"""Transformers from the numbers of their architecture.

A block has the layers `block N attention` and `block N feed-forward`. With experts, the latter has
the router, and a third layer `block N experts` has the tensors and the work of the experts. The
first layer is `embedding` and the last one `head`. Tensors are in the order of the forward pass.

The work counts the multiply-adds of matrix products as two floating-point operations each. For a
sequence of s tokens the two products of attention are 2 s^2 width operations each, as Narayanan et
al. (arXiv 2104.04473) count, who ignore that a mask hides half of them. Looking up an embedding
counts as zero. The backward pass does twice the work of the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from tuner.base.file_settings import whole
from tuner.training.model import Model, ModelLayer, Tensor, TransformerShape
from tuner.training.models.layer_tensors import linear_tensors, norm_tensors

HEADS = whole(10_000)
EXPERTS = whole(1024)
Width = Annotated[int, whole(10_000_000)]


@dataclass(frozen=True)
class Architecture:
    """The numbers of a transformer, which are the settings of one in a workload.

    layers          blocks
    width           elements of the hidden state of a token
    heads           attention heads; `width` is a multiple of it
    sequence        tokens of a sample
    vocabulary      tokens with an embedding
    feed_forward    inner width of the feed-forward layer, or of one expert; 0 for 4 times `width`
    kv_heads        heads of keys and values, which groups of heads share; 0 for one per head
    positions       trained embeddings of positions, at least `sequence`; 0 for `sequence`
    experts         experts of a block, 1 for a dense model
    active_experts  experts that work on a token
    """

    layers: Annotated[int, whole(2000)]
    width: Width
    heads: Annotated[int, HEADS]
    sequence: Width
    vocabulary: Width
    feed_forward: Width = 0
    kv_heads: Annotated[int, HEADS] = 0
    positions: Width = 0
    experts: Annotated[int, EXPERTS] = 1
    active_experts: Annotated[int, EXPERTS] = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "feed_forward", self.feed_forward or 4 * self.width)

    @property
    def kv_width(self) -> int:
        """Elements of the keys of a token over all heads, and as many of the values."""
        return self.width * (self.kv_heads or self.heads) // self.heads

    def shape(self) -> TransformerShape:
        """Return what decides the communication."""
        return TransformerShape(
            self.layers, self.width, self.heads, self.sequence, self.experts, self.active_experts
        )

    def embedding_layer(self, tensors: list[Tensor]) -> ModelLayer:
        """Return the layer that looks up the embeddings of the tokens."""
        return self.token_layer("embedding", tensors, 0, self.width)

    def attention_layer(self, block: int, tensors: list[Tensor]) -> ModelLayer:
        """Return the attention of a block: four products with weights and two with tokens."""
        weights = 2 * self.width * (self.width + self.kv_width)
        work = weights + 2 * self.sequence * self.width
        return self.token_layer(f"block {block} attention", tensors, work, self.width)

    def feed_forward_layer(self, block: int, tensors: list[Tensor], matrices: int) -> ModelLayer:
        """Return the feed-forward layer of a block with this number of matrices."""
        work = matrices * self.width * self.feed_forward
        return self.token_layer(f"block {block} feed-forward", tensors, work, self.width)

    def token_layer(
        self, name: str, tensors: list[Tensor], multiply_adds: int, outputs: int
    ) -> ModelLayer:
        """Return a layer that does the same work for each token.

        multiply_adds   per token
        outputs         elements of the output per token
        """
        forward = 2.0 * multiply_adds * self.sequence
        return ModelLayer(name, forward, 2 * forward, tuple(tensors), outputs * self.sequence)


def gpt(name: str, numbers: Architecture) -> Model:
    """Return a decoder like GPT-2 and GPT-3, whose head multiplies with the embedding of tokens.

    It has biases and trained embeddings of positions.

    Source: Radford et al., Language models are unsupervised multitask learners (2019)
    """
    layers = [numbers.embedding_layer(_embeddings(numbers))]
    for block in range(numbers.layers):
        layers += _gpt_block(numbers, block)
    norm = norm_tensors("norm", numbers.width)
    work = numbers.width * numbers.vocabulary
    layers.append(numbers.token_layer("head", norm, work, numbers.vocabulary))
    return _model(name, numbers, layers, tied=work)


def _gpt_block(numbers: Architecture, block: int) -> list[ModelLayer]:
    width, prefix = numbers.width, f"block{block}"
    attention = [
        *norm_tensors(f"{prefix}.norm1", width),
        *linear_tensors(f"{prefix}.qkv", width, width + 2 * numbers.kv_width),
        *linear_tensors(f"{prefix}.projection", width, width),
    ]
    feed_forward = [
        *norm_tensors(f"{prefix}.norm2", width),
        *linear_tensors(f"{prefix}.up", width, numbers.feed_forward),
        *linear_tensors(f"{prefix}.down", numbers.feed_forward, width),
    ]
    return [
        numbers.attention_layer(block, attention),
        numbers.feed_forward_layer(block, feed_forward, 2),
    ]


def bert(name: str, numbers: Architecture) -> Model:
    """Return an encoder like BERT, whose head is the pooler of the first token.

    It has biases and trained embeddings of positions; the classifiers of pre-training are left out.

    Source: Devlin et al. (arXiv 1810.04805)
    """
    width = numbers.width
    embeddings = [
        *_embeddings(numbers),
        Tensor("embedding.segment", 2 * width),
        *norm_tensors("embedding.norm", width),
    ]
    layers = [numbers.embedding_layer(embeddings)]
    for block in range(numbers.layers):
        layers += _bert_block(numbers, block)
    work = 2.0 * width * width
    pooler = tuple(linear_tensors("pooler", width, width))
    layers.append(ModelLayer("head", work, 2 * work, pooler, width))
    return _model(name, numbers, layers)


def _bert_block(numbers: Architecture, block: int) -> list[ModelLayer]:
    width, prefix = numbers.width, f"block{block}"
    attention = [
        *linear_tensors(f"{prefix}.query", width, width),
        *linear_tensors(f"{prefix}.key", width, numbers.kv_width),
        *linear_tensors(f"{prefix}.value", width, numbers.kv_width),
        *linear_tensors(f"{prefix}.projection", width, width),
        *norm_tensors(f"{prefix}.norm1", width),
    ]
    feed_forward = [
        *linear_tensors(f"{prefix}.up", width, numbers.feed_forward),
        *linear_tensors(f"{prefix}.down", numbers.feed_forward, width),
        *norm_tensors(f"{prefix}.norm2", width),
    ]
    return [
        numbers.attention_layer(block, attention),
        numbers.feed_forward_layer(block, feed_forward, 2),
    ]


def llama(name: str, numbers: Architecture) -> Model:
    """Return a decoder like Llama, or with several experts like Mixtral.

    It has gated feed-forward layers, norms without a shift, no biases, and a head of its own.

    Source: Touvron et al. (arXiv 2302.13971, 2307.09288), Jiang et al. (arXiv 2401.04088)
    """
    width, vocabulary = numbers.width, numbers.vocabulary
    layers = [numbers.embedding_layer([Tensor("embedding.word", vocabulary * width)])]
    for block in range(numbers.layers):
        layers += _llama_block(numbers, block)
    tensors = [Tensor("norm", width), Tensor("head", width * vocabulary)]
    layers.append(numbers.token_layer("head", tensors, width * vocabulary, vocabulary))
    return _model(name, numbers, layers)


def _llama_block(numbers: Architecture, block: int) -> list[ModelLayer]:
    width, prefix = numbers.width, f"block{block}"
    attention = [
        Tensor(f"{prefix}.norm1", width),
        Tensor(f"{prefix}.query", width * width),
        Tensor(f"{prefix}.key", width * numbers.kv_width),
        Tensor(f"{prefix}.value", width * numbers.kv_width),
        Tensor(f"{prefix}.projection", width * width),
    ]
    norm = Tensor(f"{prefix}.norm2", width)
    layers = [numbers.attention_layer(block, attention)]
    if numbers.experts > 1:
        return layers + _expert_layers(numbers, block, norm)
    gated = [norm, *_gated_tensors(numbers, prefix)]
    return [*layers, numbers.feed_forward_layer(block, gated, 3)]


def _expert_layers(numbers: Architecture, block: int, norm: Tensor) -> list[ModelLayer]:
    """Return the layer with the router of a block, and the layer of its experts."""
    weights = numbers.width * numbers.experts
    router = [norm, Tensor(f"block{block}.router", weights)]
    experts = [
        tensor
        for expert in range(numbers.experts)
        for tensor in _gated_tensors(numbers, f"block{block}.expert{expert}")
    ]
    work = 3 * numbers.active_experts * numbers.width * numbers.feed_forward
    return [
        numbers.token_layer(f"block {block} feed-forward", router, weights, numbers.width),
        numbers.token_layer(f"block {block} experts", experts, work, numbers.width),
    ]


def _gated_tensors(numbers: Architecture, prefix: str) -> list[Tensor]:
    weights = numbers.width * numbers.feed_forward
    return [Tensor(f"{prefix}.{name}", weights) for name in ("gate", "up", "down")]


def _embeddings(numbers: Architecture) -> list[Tensor]:
    """Return the embeddings of tokens and positions."""
    return [
        Tensor("embedding.word", numbers.vocabulary * numbers.width),
        Tensor("embedding.position", (numbers.positions or numbers.sequence) * numbers.width),
    ]


def _model(name: str, numbers: Architecture, layers: list[ModelLayer], tied: int = 0) -> Model:
    shape = replace(numbers.shape(), tied=tied)
    return Model(name, tuple(layers), sample="sequence", transformer=shape)
