"""The round engine: one call simulated round by round, for many message sizes in one pass.

Ranks interact only in the transfers of a round, and ports are free between rounds, so that no
event queue is needed as long as

- messages queue for ports (none share them),
- an eager message reaches a port after all messages of earlier rounds have, or early enough to
  have passed before the last one of them begins, and
- flows that can compete for a link either belong to one round in which all their starts are known,
  or do not overlap in time.

The first is known before the simulation (`RoundSimulation.is_possible`). The last two are checked
during it: a size for which they do not hold is given up, and `event_engine` simulates it instead.
See docs/explanation/round-engine.md.
"""

from tuner.sim.rounds.round_simulation import RoundSimulation
from tuner.sim.rounds.round_types import MAX_CALL_TRANSFERS

__all__ = ["MAX_CALL_TRANSFERS", "RoundSimulation"]
