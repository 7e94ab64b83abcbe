"""The workloads of the literature, as other programs find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.training.published_workloads import (
    PUBLISHED_PREFIX,
    published_machine,
    published_workloads,
)
from tuner.training.workload import workload_from_record


def test_every_published_workload_can_be_predicted() -> None:
    found = published_workloads()
    assert {"horovod-summit", "parameter-server-piz-daint", "horovod-512-vgg16"} <= set(found)
    for record in found.values():
        topology = record["topology"]
        own = published_machine(topology) if topology.startswith(PUBLISHED_PREFIX) else topology
        made = workload_from_record({**record, "topology": own}, Path("/nonexistent"))
        assert made.published


@pytest.mark.parametrize("name", ["none", "../../pyproject", "horovod-summit"])
def test_other_files_are_no_machines(name: str) -> None:
    with pytest.raises(InputError, match="expected one of published:"):
        published_machine(f"{PUBLISHED_PREFIX}{name}")
