"""What of the environment decides in place of a library's default is refused before all else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ladders import table_of
from tests.support.ranks import REQUEST, Ranks
from tuner import mpi_libraries
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.launch import Launcher
from tuner.probe.multi_host import check_probe, probe_cluster
from tuner.workflows import acceptance

DECIDING: dict[str, dict[str, tuple[str, ...]]] = {
    "openmpi": {
        "OMPI_MCA_coll_tuned_dynamic_rules_filename": ("rules",),
        "OMPI_MCA_coll_han_dynamic_rules_filename": ("rules",),
        "OMPI_MCA_coll_tuned_bcast_algorithm": ("6", "binomial"),
        "OMPI_MCA_coll_tuned_bcast_algorithm_knomial_radix": ("2",),
        "OMPI_MCA_coll_tuned_alltoall_algorithm_max_requests": ("4",),
        "OMPI_MCA_coll_tuned_priority": ("1",),
        "OMPI_MCA_coll": ("^tuned", "^han,tuned", "basic,self", "tuned2", "^tuned,han"),
    },
    "mpich": {
        "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": ("m.json",),
        "MPIR_CVAR_BCAST_INTRA_ALGORITHM": ("binomial",),
        "MPICH_BCAST_INTRA_ALGORITHM": ("1",),
        "MPIR_PARAM_ALLREDUCE_INTRA_ALGORITHM": ("ring",),
        "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE": ("d.json",),
        "MPIR_CVAR_CH4_POSIX_COLL_SELECTION_TUNING_JSON_FILE_GPU": ("s.json",),
        "MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM": ("release_gather",),
        "MPIR_CVAR_ALLREDUCE_COMPOSITION": ("2",),
        "MPIR_CVAR_DEVICE_COLLECTIVES": ("none", "all"),
        "MPIR_CVAR_BCAST_DEVICE_COLLECTIVE": ("0", "no"),
    },
}
HARMLESS: dict[str, dict[str, str]] = {
    "openmpi": {
        "OMPI_MCA_coll_tuned_dynamic_rules_filename": "",
        "OMPI_MCA_btl": "^tuned",
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_bcast_algorithm": "0",
        "OMPI_MCA_coll_tuned_allreduce_algorithm": "ignore",
        "OMPI_MCA_coll_tuned_exscan_algorithm": "1",
        "OMPI_MCA_coll_tuned_alltoall_algorithm_max_requests": "0",
        "OMPI_MCA_coll_tuned_bcast_algorithm_segmentsize": "4096",
    },
    "mpich": {
        "MPIR_CVAR_DEVICE_COLLECTIVES": "percoll",
        "MPIR_CVAR_BCAST_INTRA_ALGORITHM": "auto",
        "MPIR_CVAR_BCAST_DEVICE_COLLECTIVE": "1",
        "MPIR_CVAR_ALLREDUCE_COMPOSITION": "0",
        "MPIR_CVAR_IBCAST_INTRA_ALGORITHM": "tree",
        "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": "",
    },
}
NAME = "OMPI_MCA_coll_tuned_dynamic_rules_filename"


@pytest.mark.parametrize("library", DECIDING)
def test_what_decides_is_told_from_what_does_not(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = mpi_libraries.library_module(library).OVERRIDING_PATTERN
    for name, value in HARMLESS[library].items():
        monkeypatch.setenv(name, value)
    for components in ("", "^han", "tuned,basic,self", "basic,tuned", "^han,tuned2"):
        monkeypatch.setenv("OMPI_MCA_coll", components)
        mpi_libraries.require_no_override(pattern)
    for name, values in DECIDING[library].items():
        for value in values:
            with monkeypatch.context() as here:
                here.setenv(name, value)
                with pytest.raises(InputError, match=f"^{name} is set and would decide"):
                    mpi_libraries.require_no_override(pattern)


def test_all_that_decides_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (value, *_) in DECIDING["mpich"].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=" and ".join(sorted(DECIDING["mpich"])) + " are set"):
        mpi_libraries.require_no_override(mpi_libraries.mpich.OVERRIDING_PATTERN)


@pytest.mark.parametrize(
    "words",
    [
        "probe --out {}/m",
        "probe run --hosts a,b --out {}/m",
        "tune --hosts a,b --measurements {}/m --out {}/t",
        "quickstart --out {}/q --restart",
        "quickstart --libraries mpich,openmpi --out {}/q",
    ],
)
def test_a_verb_that_measures_says_so_before_it_starts_or_writes_anything(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "stages.json").write_text("{}")
    monkeypatch.setenv(NAME, "/etc/tuned.rules")
    monkeypatch.setattr(Launcher, "run", lambda *_, **__: pytest.fail("ranks are started"))
    assert main([word.format(tmp_path) for word in words.split()]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"tuner: {NAME} is set and would decide for every launch: unset it"
    assert {path.name for path in tmp_path.rglob("*")} - {"quickstart.lock"} == {"q", "stages.json"}


HERE = Launcher("openmpi", Path("python"))


def test_a_cluster_is_not_measured_and_a_default_not_timed_where_a_file_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, "/etc/tuned.rules")
    table = table_of({(Collective.BCAST, 2): [(0, AlgorithmChoice("binomial"))]})
    for measure in (
        lambda: check_probe(tmp_path / "m", REQUEST, Ranks()),
        lambda: probe_cluster(tmp_path / "m", REQUEST, Ranks()),
        lambda: acceptance.accept_winning_rules(table, HERE, lambda *_: None),
        lambda: acceptance.time_against_default(table, HERE, lambda *_: None),
    ):
        with pytest.raises(InputError, match="is set and would decide"):
            measure()
    assert not list(tmp_path.iterdir())
