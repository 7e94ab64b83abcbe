"""`tuner calibrate` as a user meets it: files in, files and tables out."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.probed import Machine, racks, truth
from tests.support.stored import measurements_file
from tuner.base.units import format_time
from tuner.calibrate import calibrate, fit_calibration
from tuner.cli.main import main
from tuner.cli.views.calibration_view import format_estimate, print_calibration
from tuner.core.calibration import Estimate, PathCost, read_calibration, write_calibration
from tuner.core.measurement import Measurement, read_measurements
from tuner.report.fit_plots import save_fit_plots
from tuner.topology import Topology

MACHINE = Machine(racks(2), truth())


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    return measurements_file(tmp_path / "m.ndjson", MACHINE.measured(MACHINE.messages()))


def short(topology: Topology) -> dict[str, Any]:
    """As one writes it by hand; JSON is YAML."""
    links = [
        {
            "from": link.source,
            "to": link.target,
            "latency": f"{link.latency * 1e6:g}us",
            "bandwidth": f"{link.capacity / 1e6:g}MB/s",
        }
        for link in topology.links
    ]
    return {
        "name": topology.name,
        "nodes": [node.name for node in topology.nodes],
        "switches": list(topology.switches),
        "links": links,
    }


def test_a_calibration_with_its_topology_and_pictures(measured: Path, tmp_path: Path) -> None:
    topology, out, plots = (tmp_path / name for name in ("t.yaml", "c.json", "plots"))
    topology.write_text(json.dumps(short(MACHINE.topology)))
    words = ["--topology", str(topology), "--out", str(out), "--plots", str(plots)]
    assert main(["calibrate", str(measured), *words]) == 0
    expected = calibrate(MACHINE.measured(MACHINE.messages()), MACHINE.topology)
    found = read_calibration(out)
    assert found.paths.keys() == expected.paths.keys()
    for nbytes in (64, 2**20):
        seconds = expected.path_cost("network").seconds(nbytes)
        assert found.path_cost("network").seconds(nbytes) == pytest.approx(seconds)
    assert {path.name for path in plots.iterdir()} == {
        "fit-network-host.svg",
        "fit-network-host.png",
    }
    assert "outlier" not in (plots / "fit-network-host.svg").read_text()


def test_a_size_far_off_is_named_and_drawn_with_its_residual(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = [
        replace(one, samples=tuple(3 * t for t in one.samples)) if one.nbytes == 8192 else one
        for one in MACHINE.messages()
    ]
    measured = measurements_file(tmp_path / "m.ndjson", MACHINE.measured(iter(series)))
    assert main(["calibrate", str(measured), "--plots", str(tmp_path)]) == 0
    drawn = (tmp_path / "fit-network-host.svg").read_text()
    assert "network: far off the line, and counting little: 8KiB" in capsys.readouterr().out
    (percent,) = re.findall(r"<!--\s*\+(\d+) -->", drawn)
    assert int(percent) == pytest.approx(200, abs=20)


@pytest.mark.parametrize(
    ("price", "sentences"),
    [
        ({}, []),
        ({"sync_ack_threshold": 181.02}, ["senders of about 181B and more wait for an ack"]),
        (
            {"early_push_limit": math.inf},
            ["messages of 58.6KiB and more set out at once, but their senders"],
        ),
        (
            {"early_push_limit": 2.0**17},
            ["messages of 58.6KiB and more, below 128KiB, set out at once"],
        ),
    ],
)
def test_what_senders_wait_for_is_said(
    capsys: pytest.CaptureFixture[str], price: dict[str, Any], sentences: list[str]
) -> None:
    cost = replace(truth().path_cost("network"), **price)
    print_calibration(replace(truth(), paths={("network", "host"): cost}))
    said = " ".join(capsys.readouterr().out.split())
    assert all(sentence in said for sentence in sentences)
    assert ("senders" in said) is bool(sentences)


@pytest.mark.parametrize("topology", ["", "racks.yaml"])
def test_what_comes_after_a_probe_keeps_its_topology(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], topology: str
) -> None:
    known = ["--topology", topology] if topology else []
    out = str(tmp_path / "all.ndjson")
    assert main(["probe", "merge", str(measured), "--out", out, *known]) == 0
    said = "".join(capsys.readouterr().out.split())
    expected = " ".join(["next: tuner calibrate", out, *known, "--out calibration.json"])
    assert "".join(expected.split()) in said


def test_latency_and_rate_of_the_links_are_shown(
    measured: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "t.yaml"
    path.write_text(json.dumps(short(MACHINE.topology)))
    assert main(["calibrate", str(measured), "--topology", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        f"alpha of network comes on top of the links' latencies in {MACHINE.topology.name}" in said
    )
    found = calibrate(MACHINE.measured(MACHINE.messages()), MACHINE.topology)
    latency = found.provenance["links"]["network"]["latency"][0]
    assert f"network {format_time(latency)} (" in said.partition(" links ")[2]
    for name, shown in (("2 links, 2us, 1.25e+07B/s", "2 links, 2us, 12.5 MB/s"), ("node", "node")):
        cost = {(name, "host"): truth().path_cost("network")}
        print_calibration(replace(truth(), paths=cost))
        assert f" {shown} below 58.6KiB " in " ".join(capsys.readouterr().out.split())


def test_what_cannot_be_calibrated_is_not_sent_there(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = read_measurements(measured)
    some = tuple(one for one in whole.series if one.kind != "pingpong")
    few = measurements_file(tmp_path / "few.ndjson", replace(whole, series=some))
    assert main(["probe", "merge", str(few), "--out", str(tmp_path / "all.ndjson")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "next: a probe with messages, or with a larger --budget" in said
    assert "tuner calibrate" not in said


def test_the_command_that_makes_a_table_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = MACHINE.measured(MACHINE.messages())
    call = Measurement("collective", "bcast", 2, 1, 2, 1024, (1e-5,) * 8)
    for series, named in ((found.series, False), ((*found.series, call), True)):
        m = str(measurements_file(tmp_path / "m 1.ndjson", replace(found, series=series)))
        assert main(["calibrate", m, "--out", str(tmp_path / "c.json")]) == 0
        said = capsys.readouterr().out
        command = f"next: tuner tune --measurements '{m}' --calibration {tmp_path / 'c.json'}"
        assert (command in said) is named


def test_a_table_without_hosts_wants_a_calibration(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--measurements", str(measured), "--out", str(tmp_path / "t.json")]
    assert main(["tune", *words]) == 2
    said = "tuner: say what the measurements were calibrated to: --calibration FILE\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("nodes", [1, 2])
def test_of_one_host_the_inside_of_a_topology_alone_counts_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: int
) -> None:
    found = MACHINE.measured(MACHINE.messages())
    if nodes == 1:
        own = tuple(replace(one, subject="node", nodes=1) for one in found.series)
        found = replace(found, series=own, cluster=replace(found.cluster, nodes=1))
    m, topology, c = (str(tmp_path / name) for name in ("m.ndjson", "t.yaml", "c.json"))
    measurements_file(Path(m), found)
    Path(topology).write_text(json.dumps(short(MACHINE.topology)))
    said = "m.ndjson: measured on one host: of --topology only the inside of a node is used"
    assert main(["calibrate", m, "--topology", topology, "--out", c]) == 0
    assert (said in capsys.readouterr().err) is (nodes == 1)
    tune = ["tune", "--measurements", m, "--calibration", c, "--out", str(tmp_path / "table.json")]
    main([*tune, "--topology", topology])
    assert (said in capsys.readouterr().err) is (nodes == 1)
    main(tune)
    assert said not in capsys.readouterr().err


OTHER = {  # what people give instead, and what is said of it
    "absent": (None, "No such file or directory"),
    "packed": (b"\x1f\x8b\x08\x00\xff" * 9, "no text in UTF-8"),
    "folder": (b"", "Is a directory"),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_files_are_refused_in_words_that_people_know(
    tmp_path: Path, measured: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    content, why = OTHER[name]
    path, out = tmp_path / name, str(tmp_path / "out")
    if name == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    for words in (["calibrate"], ["probe", "merge", str(measured)]):
        assert main([*words, str(path), "--out", out]) == 1
        said = capsys.readouterr().err
        assert said == (
            f"tuner: {path}: cannot be read as measurements: {why}; give a file that `tuner probe`"
            " wrote\n"
        )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\x1f\x8b\xff", "no text in UTF-8"),
        (b"", "no JSON, or a damaged one, at line 1"),
        (b'{"version":\n', "no JSON, or a damaged one, at line 2"),
        (b"[1]", "a file of another kind"),
        (b'{"version": 1}', "it lacks 'paths'"),
    ],
)
def test_what_is_no_calibration_is_said_likewise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, why: str
) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content)
    assert main(["calibrate", "compare", str(path), str(path)]) == 1
    assert capsys.readouterr().err == (
        f"tuner: {path}: not a calibration ({why}); make one with `tuner calibrate`\n"
    )


def test_drift_as_json_and_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = calibrate(MACHINE.measured(MACHINE.messages()))
    files = [tmp_path / name for name in ("a.json", "b.json")]
    for path in files:
        write_calibration(one, path)
    assert main(["calibrate", "compare", *map(str, files), "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)
    assert {change["ratio"] for change in changes} == {1.0}
    assert main(["calibrate", "compare", *map(str, files)]) == 0
    assert f"0 of {len(changes)} parameters changed" in capsys.readouterr().out


def test_the_ratio_is_that_of_the_figures_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the seconds per byte are half the rate; JSON keeps to the former."""
    monkeypatch.setenv("COLUMNS", "300")
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for path, beta in zip(files, (1e-9, 2e-9), strict=True):
        cost = {("network", "host"): PathCost.from_alpha_beta(5e-6, beta)}
        write_calibration(replace(truth(), paths=cost), Path(path))
    assert main(["calibrate", "compare", *files]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "network, all: 1/beta 1 GB/s (1 to 1) 0.5 GB/s (0.5 to 0.5) 0.500" in said
    assert main(["calibrate", "compare", *files, "--json"]) == 0
    (change,) = [c for c in json.loads(capsys.readouterr().out) if "beta" in c["parameter"]]
    assert (change["parameter"], change["ratio"]) == ("network [0B, inf): beta", 2.0)


def test_rates_have_no_exponents() -> None:
    wide = Estimate(5e7, 1.5e3, 4.15e9)
    assert format_estimate("capacity nic", wide) == "50 MB/s (0.0015 to 4150)"
    assert (
        format_estimate("capacity nic", Estimate(1.5e12, 1e12, 2e12)) == "1500 GB/s (1000 to 2000)"
    )


@pytest.mark.extended
def test_pictures_show_the_refined_lines_that_are_written(tmp_path: Path) -> None:
    found = fit_calibration(MACHINE.measured(MACHINE.messages()))
    dear = found.calibration.path_cost("network")
    segments = tuple(
        replace(s, alpha=Estimate.exact(2 * s.alpha.value), beta=Estimate.exact(2 * s.beta.value))
        for s in dear.segments
    )
    paths = {**found.calibration.paths, ("network", "host"): replace(dear, segments=segments)}
    refined = replace(found.calibration, paths=paths)
    for name, drawn in (("plain", None), ("refined", refined)):
        save_fit_plots(found, tmp_path / name, drawn)
        text = (tmp_path / name / "fit-network-host.svg").read_text()
        assert ("refined, as written" in text) is (name == "refined")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["compare", "a.json"], "takes two calibrations"),
        (["compare", "a.json", "b.json", "--refine"], "only prints"),
        (["a.ndjson", "b.ndjson"], "one file of measurements, not 2"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *words]) != 0
    assert why in capsys.readouterr().err


def test_refinement_without_collectives_is_refused(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", str(measured), "--refine"]) != 0
    assert "probe more of them" in capsys.readouterr().err


def test_devices_have_copies_kernels_and_queries() -> None:
    series = list(MACHINE.messages())
    for subject, rate in (("h2d_pinned", 2e10), ("d2h_pinned", 2e10), ("d2d", 1e12)):
        for nbytes in (1024, 2**16, 2**20, 2**24):
            series += cuda("copy", subject, nbytes, 1e-5 + nbytes / rate)
    for nbytes in (1024, 2**16, 2**20, 2**24):
        series += cuda("reduction", "sum_float32", nbytes, 5e-6 + nbytes / 5e11)
        series += cuda("reduction", "max_float64", nbytes, 5e-6 + nbytes / 2.5e11)
    series += cuda("pointer", "query", 0, 3e-7)
    found = calibrate(MACHINE.measured(iter(series)))
    staging = found.path_cost("staging", "cuda").segments[0]
    assert staging.beta.value == pytest.approx(1 / 2e10, rel=0.02)
    assert staging.alpha.value == pytest.approx(1e-5, rel=0.05)
    assert found.path_cost("self", "cuda").segments[0].beta.value == pytest.approx(1e-12, rel=0.1)
    assert found.reduction["cuda"].gamma.value == pytest.approx(2e-12, rel=0.05)
    assert found.reduction["cuda max_float64"].gamma.value == pytest.approx(4e-12, rel=0.05)
    assert found.pointer_query_seconds == pytest.approx(3e-7, rel=0.02)


def cuda(kind: str, subject: str, nbytes: int, seconds: float) -> list[Measurement]:
    found = MACHINE.series(kind, subject, 1, nbytes, seconds)
    return [replace(one, memory="cuda", nodes=1) for one in found]


def test_both_directions_at_once_are_compared_with_one() -> None:
    lone = MACHINE.one_way([0, 1], 2**18)
    both = MACHINE.series("exchange", "network", 2, 2**18, 3 * 1.5 * lone, rows=3)
    found = calibrate(MACHINE.measured(MACHINE.messages(), both))
    (line,) = found.provenance["exchanges"]
    assert line["ratio"] == pytest.approx(1.5, rel=0.02)
    assert (line["rows"], line["ranks"], line["ring"]) == (3, 2, False)
