"""MPI libraries by what they say of themselves.

Strings of libraries that do not run here are those of published job logs (Cray MPICH 8.1.28 of a
Perlmutter node, MVAPICH2 2.3.5, Spectrum MPI 10.3.1) and of the MPI.jl project's tests.
"""

from __future__ import annotations

import pytest

from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.mpi_libraries import mpich, openmpi
from tuner.mpi_libraries.capabilities import Capabilities, ControlVariable
from tuner.mpi_libraries.products import base_of, identify, title_of

SAID = {
    "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022": (
        "openmpi 4.1.4",
        "openmpi",
    ),
    "Open MPI v5.0.0rc12, package: Open MPI root@builder Distribution, ident: 5.0.0rc12": (
        "openmpi 5.0.0rc12",
        "openmpi",
    ),
    "Open MPI v10.3.1.03rtm0, package: IBM Spectrum MPI, ident: IBM Spectrum MPI, repo rev: x": (
        "spectrummpi 10.3.1.03rtm0",
        "openmpi",
    ),
    "Open MPI v3.1.0, package: IBM Spectrum MPI, ident: 10.03.01.00rtm0, repo rev: y": (
        "spectrummpi 10.03.01.00rtm0",
        "openmpi",
    ),
    "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n": (
        "mpich 4.0.2",
        "mpich",
    ),
    "MPICH Version:      5.0.2\nMPICH Release date: Fri Sep 25 20:45:26 UTC 2026\n": (
        "mpich 5.0.2",
        "mpich",
    ),
    "MPI VERSION    : CRAY MPICH version 8.1.28.2 (ANL base 3.4a2)\n"
    "MPI BUILD INFO : Wed Nov 15 21:59 2023 (git hash 1cde46f)\n": ("craympich 8.1.28.2", "mpich"),
    "MVAPICH2 Version      :\t2.3.5\n"
    "MVAPICH2 Release date :\tMon November 30 22:00:00 EST 2020\n": ("mvapich2 2.3.5", "mpich"),
    "MVAPICH2-GDR Version  :\t2.3.7\n": ("mvapich2 2.3.7", "mpich"),
    "MVAPICH Version:\t3.0\nMVAPICH Release date:\tx\n": ("mvapich 3.0", "mpich"),
    "MVAPICH Version:      4.0\n": ("mvapich 4.0", "mpich"),
    "MVAPICH-Plus Version:      4.1\n": ("mvapichplus 4.1", "mpich"),
    "Intel(R) MPI Library 2021.18.1 for Linux* OS\n": ("intelmpi 2021.18.1", "intelmpi"),
    "Intel(R) MPI Library 2019 Update 4 for Linux* OS": ("intelmpi 2019.4", "intelmpi"),
}


@pytest.mark.parametrize("said", SAID)
def test_a_library_is_known_by_its_version_string(said: str) -> None:
    library, base = SAID[said]
    assert identify(said).library == library
    assert identify(said).product.base == base_of(library) == base


def test_an_unknown_library_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match=r"unknown MPI library 'Some Other MPI 1\.0': use one of"):
        identify("Some Other MPI 1.0\n")


def test_what_is_built_on_a_library_has_its_algorithms_and_its_own_name() -> None:
    assert mpi_libraries.library_module("craympich 8.1.28") is mpich
    assert mpi_libraries.library_module("spectrummpi 10.3.1") is openmpi
    assert title_of("craympich 8.1.28") == "Cray MPICH 8.1.28"
    assert title_of("spectrummpi") == "IBM Spectrum MPI"
    assert [title_of(name) for name in ("nccl 2.27", "rccl", "ucc")] == ["NCCL 2.27", "RCCL", "UCC"]


MPICH_4_0 = Capabilities(
    {
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": ControlVariable(
            True, {"auto": 0, "recursive_doubling": 3, "reduce_scatter_allgather": 4}
        ),
        "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": ControlVariable(True),
    }
)


def test_an_algorithm_that_a_version_lacks_is_no_candidate() -> None:
    offered = mpi_libraries.available_candidates("mpich", MPICH_4_0)
    names = {choice.algorithm for choice in offered(Collective.ALLREDUCE, 4, 65536)}
    assert names == {"default", "recursive_doubling", "rabenseifner"}
    assert [choice.algorithm for choice in offered(Collective.BCAST, 4, 65536)] == ["default"]
    assert mpi_libraries.describe_missing_algorithms("mpich 4.0.2", MPICH_4_0) == [
        "MPICH 4.0.2 has no pipeline, binary, binomial, scatter_allgather and"
        " scatter_allgather_ring for bcast: the other algorithms are measured",
        "MPICH 4.0.2 has no bruck and recursive_doubling for allgatherv: the other algorithms are"
        " measured",
        "MPICH 4.0.2 has no ring for allreduce: the other algorithms are measured",
        "MPICH 4.0.2 has no bruck, pairwise_exchange and spread_out for alltoall: the other"
        " algorithms are measured",
        "MPICH 4.0.2 has no spread_out for alltoallv: the other algorithms are measured",
        "MPICH 4.0.2 has no dissemination and recursive_doubling for barrier: the other algorithms"
        " are measured",
    ]


@pytest.mark.parametrize(
    ("settable", "settings"), [(False, {"coll_tuned_use_dynamic_rules": "1"}), (True, {})]
)
def test_what_the_environment_alone_can_set_is_set_at_the_start(
    settable: bool, settings: dict[str, str]
) -> None:
    found = Capabilities({"coll_tuned_use_dynamic_rules": ControlVariable(settable)})
    assert openmpi.startup_settings(found) == settings
    assert openmpi.startup_settings(Capabilities({})) == {}
