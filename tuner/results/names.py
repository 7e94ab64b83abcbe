"""One name for one algorithm, whatever a file calls it."""

from __future__ import annotations

import re

DEFAULT = "default"
_SAME = {
    "basic_linear": "linear", "split_binary_tree": "split_binary", "binary_tree": "binary",
    "binomial_tree": "binomial", "knomial_tree": "knomial", "non_overlapping": "nonoverlapping",
    "neighbor": "neighbor_exchange", "ring_segmented": "segmented_ring", "brucks": "bruck",
    "rabenseifner_s": "rabenseifner", "tuned": DEFAULT, "": DEFAULT,
}  # fmt: skip
_LIBRARIES = {"ompi": "openmpi", "open": "openmpi"}


def algorithm_name(text: str) -> str:
    """`2. chain`, `chain_ompi` and `default-chain` are `chain`; `default_mpich` is `default`.

    Numbers before a name, and the library it is of behind it, go. What is no algorithm of the
    library, such as `ring_over`, stays apart.
    """
    name = re.sub(r"^[0-9]+\.\s*", "", text.strip().lower())
    name = re.sub(r"[^a-z0-9]+", "_", name).strip("_")
    name = re.sub(r"_(ompi|mpich)$", "", name)
    if name != DEFAULT:
        name = name.removeprefix(f"{DEFAULT}_")
    return _SAME.get(name, name)


def library_name(name: str, version: str = "") -> str:
    """`openmpi 4.1.6` of `OMPI` and `4.1.6`; "" of nothing."""
    words = f"{name} {version}".split()
    if words[:2] == ["Open", "MPI"]:
        words = words[1:]
        words[0] = "openmpi"
    elif words:
        words[0] = _LIBRARIES.get(words[0].lower(), words[0].lower())
    return " ".join(words)
