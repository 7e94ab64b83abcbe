"""The number of examples for a property: a fifth of them, or all in `make test-extended`."""

import os

VARIABLE = "TUNER_TEST_EXAMPLES"


def examples(count: int) -> int:
    """Return how many of `count` examples to try here: all where the variable says `all`."""
    return count if os.environ.get(VARIABLE) == "all" else max(20, count // 5)
