"""The variable by which Open MPI lets its algorithms be forced; this module does not start MPI."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

DYNAMIC_RULES_VARIABLE = "OMPI_MCA_coll_tuned_use_dynamic_rules"
FORCING_VARIABLES_PATTERN = re.compile(
    "OMPI_MCA_coll_tuned_.*(_algorithm|_rules_filename)"
)  # without effect unless DYNAMIC_RULES_VARIABLE is set


@contextmanager
def enable_dynamic_rules() -> Iterator[None]:
    """Set the variable that lets Open MPI's algorithms be forced while MPI starts.

    Open MPI up to 4.1.6 and from 5.0.0 to 5.0.5 reads it only from the environment. The library
    default does not change.
    """
    if DYNAMIC_RULES_VARIABLE in os.environ or any(
        map(FORCING_VARIABLES_PATTERN.fullmatch, os.environ)
    ):  # keep the user's settings
        yield
        return
    os.environ[DYNAMIC_RULES_VARIABLE] = "1"
    try:
        yield
    finally:
        del os.environ[DYNAMIC_RULES_VARIABLE]  # not for processes that the program starts
