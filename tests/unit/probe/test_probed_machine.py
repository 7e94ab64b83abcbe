"""This computer is known under its own name, and as the only host of a probe of hosts."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from tuner.probe.probed_machine import is_this_computer, local_cluster


@pytest.mark.parametrize(
    ("changes", "hosts", "is_here"),
    [
        ({}, (), True),
        ({"name": "localhost"}, (), True),
        ({"name": "localhost", "cores": os.cpu_count()}, (), True),
        ({"name": "node"}, (local_cluster().name,), True),
        ({"name": "node"}, ("elsewhere",), False),
        ({"name": "localhost"}, ("elsewhere",), False),
        ({}, ("elsewhere",), False),
        ({"name": "localhost", "cores": 100_000}, (), False),
        ({"name": "localhost", "cpu": "another one"}, (), False),
        ({"name": "localhost", "nodes": 2}, (), False),
    ],
)
def test_a_cluster_is_this_computer_where_names_and_parts_agree(
    changes: dict[str, Any], hosts: tuple[str, ...], is_here: bool
) -> None:
    assert is_this_computer(replace(local_cluster(), **changes), hosts) == is_here
