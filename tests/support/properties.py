"""The number of examples for a property: a tenth of them, or all in `make test-weekly`."""

import os

VARIABLE = "TUNER_TEST_EXAMPLES"


def examples(count: int) -> int:
    """Return how many of `count` examples to try here: all where the variable says `all`."""
    return count if os.environ.get(VARIABLE) == "all" else max(10, count // 10)
