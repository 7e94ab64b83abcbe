"""A node of which NCCL and ibnetdiscover say different things."""

from __future__ import annotations

from tests.support.fabrics import DOWN, NAMES, UP, fabric
from tests.support.nodes import adapter, card, nccl

# Adapters in the other order: mlx5_0 is the second NIC of the file.
NODE = nccl(card("02", 0) + adapter("05", "mlx5_1", 0), card("12", 1) + adapter("15", "mlx5_0", 1))


PAIRS = fabric(
    {name: NAMES[name] for name in NAMES if name not in ("H30", "H40")},
    [cable for cable in UP + DOWN if cable[0] not in ("H30", "H40")],
)
