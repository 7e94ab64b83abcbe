"""What workers need, loaded once by the process from which they are forked.

A process that imports this module has the compiled simulation and the plans of a small study and a
small training, as far as they are compiled already; it compiles nothing.
"""

import os
from contextlib import suppress

from tuner.api.live_answers import price_small_study
from tuner.api.training_answers import predict_small_training
from tuner.sim.jit import NotCompiledError, forbid_compilation

NICENESS = 5  # the process that answers has priority over its workers

os.nice(NICENESS)
for load in (price_small_study, predict_small_training):
    with suppress(NotCompiledError), forbid_compilation():
        load()
