"""The known models by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tuner.base.errors import InputError
from tuner.base.spelling import unknown_name
from tuner.training.model import Model
from tuner.training.models.googlenet import googlenet
from tuner.training.models.inception import inception_v3, inception_v4
from tuner.training.models.plain_cnns import alexnet, alexnet_caffe, mobilenet, vgg
from tuner.training.models.residual_cnns import densenet121, resnet
from tuner.training.models.transformers import Architecture, bert, gpt, llama

_CNNS: dict[str, Callable[[], Model]] = {
    "alexnet": alexnet,
    "alexnet_caffe": alexnet_caffe,
    "vgg16": partial(vgg, 16),
    "vgg19": partial(vgg, 19),
    "googlenet": googlenet,
    "googlenet_aux": partial(googlenet, auxiliary=True),
    "resnet50": partial(resnet, 50),
    "resnet101": partial(resnet, 101),
    "resnet152": partial(resnet, 152),
    "inception_v3": inception_v3,
    "inception_v3_aux": partial(inception_v3, auxiliary=True),
    "inception_v4": inception_v4,
    "mobilenet": mobilenet,
    "densenet121": densenet121,
}


def _bert(layers: int, width: int, heads: int) -> Architecture:
    return Architecture(layers, width, heads, 512, 30522, 4 * width)


def _gpt(layers: int, width: int, heads: int, sequence: int = 1024) -> Architecture:
    return Architecture(layers, width, heads, sequence, 50257, 4 * width)


_TRANSFORMERS: dict[str, tuple[Callable[[str, Architecture], Model], Architecture]] = {
    # Devlin et al. (arXiv 1810.04805), section 3
    "bert_base": (bert, _bert(12, 768, 12)),
    "bert_large": (bert, _bert(24, 1024, 16)),
    # Radford et al., Language models are unsupervised multitask learners (2019), table 2
    "gpt2_small": (gpt, _gpt(12, 768, 12)),
    "gpt2_medium": (gpt, _gpt(24, 1024, 16)),
    "gpt2_large": (gpt, _gpt(36, 1280, 20)),
    "gpt2_xl": (gpt, _gpt(48, 1600, 25)),
    # Brown et al. (arXiv 2005.14165), table 2.1
    "gpt3_175b": (gpt, _gpt(96, 12288, 96, 2048)),
    # Touvron et al. (arXiv 2307.09288), table 1
    "llama2_7b": (llama, Architecture(32, 4096, 32, 4096, 32000, 11008)),
    # Grattafiori et al. (arXiv 2407.21783), table 3
    "llama3_8b": (llama, Architecture(32, 4096, 32, 8192, 128256, 14336, kv_heads=8)),
    "llama3_70b": (llama, Architecture(80, 8192, 64, 8192, 128256, 28672, kv_heads=8)),
    "llama3_405b": (llama, Architecture(126, 16384, 128, 8192, 128256, 53248, kv_heads=8)),
    # Jiang et al. (arXiv 2401.04088), table 1, which gives a context of 32768 tokens
    "mixtral_8x7b": (
        llama,
        Architecture(*(32, 4096, 32, 32768, 32000, 14336), kv_heads=8, experts=8, active_experts=2),
    ),
}

MODEL_NAMES = (*_CNNS, *_TRANSFORMERS)


def build_model(name: str) -> Model:
    """Return the model of this name; a sample of a transformer has as many tokens as its context.

    Raises InputError for a name that is not in MODEL_NAMES.
    """
    if name in _CNNS:
        return _CNNS[name]()
    if name not in _TRANSFORMERS:
        raise InputError(unknown_name("model", name, MODEL_NAMES))
    build, architecture = _TRANSFORMERS[name]
    return build(name, architecture)
