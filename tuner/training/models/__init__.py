"""Models by name, computed from their architecture, and transformers of users."""

from tuner.training.models.catalogue import MODEL_NAMES, build_model
from tuner.training.models.model_records import model_from_record
from tuner.training.models.transformers import Architecture, bert, gpt, llama

__all__ = [
    "MODEL_NAMES",
    "Architecture",
    "bert",
    "build_model",
    "gpt",
    "llama",
    "model_from_record",
]
