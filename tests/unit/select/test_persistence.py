"""Trained selectors on disk: what comes back, what is refused, and the one that ships."""

from __future__ import annotations

import argparse
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.base import resources
from tuner.base.errors import InputError
from tuner.cli.commands.select import _print_asked, arguments, resolve_shape
from tuner.cli.commands.train import MODEL_CARD_FILE, model_card
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.select import persistence
from tuner.select.cases import EvaluationCase
from tuner.select.dataset import CallPoint, Observation, no_simulation
from tuner.select.persistence import (
    MANIFEST_FILE,
    SELECTOR_FILE,
    Manifest,
    TrainingTable,
    read_selector,
    write_selector,
)

RING, CHAIN = AlgorithmChoice("ring"), AlgorithmChoice("chain", {"segment": 8192})
ARMS: dict[AlgorithmChoice, Callable[[int, int], float]] = {
    AlgorithmChoice(): lambda _, nodes: 2e-5 * nodes,
    RING: lambda nbytes, nodes: 3e-5 * nodes + nbytes * 1e-10,
    CHAIN: lambda nbytes, nodes: 1e-6 * nodes + nbytes * 2e-9,
}


def case(group: str, nodes: int, nbytes: int) -> EvaluationCase:
    point = CallPoint("bcast", nodes, 1, "host", nbytes)
    rows = {}
    for choice, seconds in ARMS.items():
        time = seconds(nbytes, nodes)
        rows[choice] = Observation(point, choice, {0: (time,)}, time, time * 0.98, time * 1.02)
    return EvaluationCase(group, point, rows)


CASES = [case(g, n, 1 << k) for g in ("one 1.0", "two") for n in (2, 4, 8) for k in (6, 12, 18, 24)]
TRAINED = TrainingTable.from_cases(CASES)
MANIFEST_OF = Manifest({"a.csv": "0" * 64}, {"tuner": "1"}, {})


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    write_selector(TRAINED, MANIFEST_OF, tmp_path / "kept")
    return tmp_path / "kept"


def test_what_comes_back_believes_the_same(kept: Path) -> None:
    trained, manifest = read_selector(kept)
    assert manifest == replace(
        MANIFEST_OF, selector=sha256((kept / SELECTOR_FILE).read_bytes()).hexdigest()
    )
    assert trained.groups == ("one 1.0", "two")
    before, after = (each.train_selector(no_simulation, "two") for each in (TRAINED, trained))
    asked = [
        CallPoint("bcast", nodes, 1, "host", n) for nodes in (2, 3, 16) for n in (64, 5000, 1 << 24)
    ]
    assert [before.choose(p) for p in asked] == [after.choose(p) for p in asked]
    assert [before.predict_seconds(p, RING) for p in asked] == [
        after.predict_seconds(p, RING) for p in asked
    ]
    assert {after.choose(p) for p in asked[:3]} == {CHAIN, AlgorithmChoice()}


def test_what_the_default_runs_comes_back_with_its_times(tmp_path: Path) -> None:
    """It runs the ring from 4 KiB on, whose times are then the default's, also between sizes."""
    known = DefaultAlgorithms(Collective.BCAST, 4, 1, 1 << 32, (4, 4096), (None, RING))
    manifest = replace(MANIFEST_OF, default_algorithms={"two": (known,)})
    write_selector(TRAINED, manifest, tmp_path)
    trained, kept = read_selector(tmp_path)
    assert kept.default_algorithms == manifest.default_algorithms
    point = CallPoint("bcast", 4, 1, "host", 1 << 16)
    for group, at, alike in (
        ("two", point, True),
        ("two", point.with_size(64), False),
        ("two", replace(point, nodes=8), False),
        ("one 1.0", point, False),
    ):
        selector = trained.train_selector(no_simulation, group, kept.default_algorithms)
        ring, default = (selector.predict_seconds(at, one) for one in (RING, AlgorithmChoice()))
        assert (ring == pytest.approx(default)) is alike


def test_a_machine_must_be_named(kept: Path) -> None:
    trained, _ = read_selector(kept)
    with pytest.raises(InputError, match=r"say what it is like: there are one 1\.0, two"):
        trained.train_selector(no_simulation)
    with pytest.raises(InputError, match="nothing was learned of 'three'"):
        trained.train_selector(no_simulation, "three")
    alone = TrainingTable.from_cases([each for each in CASES if each.group == "two"])
    assert alone.train_selector(no_simulation).choose(CASES[0].point) == CHAIN


def dumped(content: object, **named: Any) -> bytes:
    """Return what skops writes, which takes seconds to import."""
    import skops.io

    data: bytes = skops.io.dumps(content, **named)
    return data


def regression() -> object:
    """Return an estimator of scikit-learn."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression()


def forged(kept: Path, content: object) -> Path:
    """A file of other content, with the right hash beside it."""
    data = (
        content
        if isinstance(content, bytes)
        else dumped(vars(content) if isinstance(content, TrainingTable) else content)
    )
    (kept / SELECTOR_FILE).write_bytes(data)
    record = json.loads((kept / MANIFEST_FILE).read_text())
    record["selector"] = sha256(data).hexdigest()
    (kept / MANIFEST_FILE).write_text(json.dumps(record))
    return kept


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no archive", "is not a trained selector"),
        (Counter("aab"), r"names .*, which no selector needs: not loaded"),
        (regression, "is not a trained selector"),
        ({"group": 1}, "is not a trained selector"),
        (replace(TRAINED, nodes=TRAINED.nodes[1:]), "columns do not fit together"),
        (replace(TRAINED, nodes=TRAINED.nodes * 0), "columns do not fit together"),
        (replace(TRAINED, seconds=TRAINED.seconds * np.nan), "columns do not fit together"),
        (replace(TRAINED, group=TRAINED.group[:, None]), "columns do not fit together"),
        (
            replace(TRAINED, seconds=TRAINED.low * 0 + 5e-324, low=TRAINED.low * 0 + 5e-324),
            "columns do not fit together",
        ),
        (
            replace(TRAINED, seconds=TRAINED.high * 0 + 1e308, high=TRAINED.high * 0 + 1e308),
            "columns do not fit together",
        ),
    ],
)
def test_what_is_no_selector_is_refused(kept: Path, content: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_selector(forged(kept, content() if callable(content) else content))


def column(shape: str) -> bytes:
    """A file of numpy that says so much of itself, and holds nothing."""
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}".ljust(118) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def with_columns(data: bytes) -> bytes:
    """A selector's file in which all columns are these."""
    forgery = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(dumped(vars(TRAINED)))) as read:
        entries = {name: read.read(name) for name in read.namelist()}
    with zipfile.ZipFile(forgery, "w") as written:
        for name, own in entries.items():
            written.writestr(name, data if name.endswith(".npy") else own)
    return forgery.getvalue()


def encrypted(data: bytes) -> bytes:
    """With the bit set of every entry that says so."""
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for begin in [found.start() for found in re.finditer(re.escape(mark), data)]:
            at = begin + flags
            data = data[:at] + bytes([data[at] | 1]) + data[at + 1 :]
    return data


def scrambled() -> bytes:
    """With every other byte of the compressed data of the first entry turned round."""
    data = bytearray(dumped(vars(TRAINED), compression=zipfile.ZIP_DEFLATED))
    begin = 30 + int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
    data[begin + 10 : begin + 50] = bytes(byte ^ 0xFF for byte in data[begin + 10 : begin + 50])
    return bytes(data)


@pytest.mark.parametrize(
    "content",
    [
        scrambled,
        lambda: encrypted(dumped(vars(TRAINED))),
        lambda: with_columns(column("(100000000000000,)}")),
        lambda: with_columns(column("(1000000000000000000000000000000,)}")),
        lambda: with_columns(column("(((((}")),
    ],
    ids=["deflate", "encrypted", "huge", "more than 64 bits", "header"],
)
def test_damage_that_libraries_stumble_on_is_refused(
    kept: Path, content: Callable[[], bytes]
) -> None:
    with pytest.raises(InputError, match=r"selector\.skops: is not a trained selector: "):
        read_selector(forged(kept, content()))


def test_foreign_choices_are_refused(kept: Path) -> None:
    trained, _ = read_selector(
        forged(kept, replace(TRAINED, choice=np.full(len(TRAINED.choice), '{"algorithm": 3}')))
    )
    with pytest.raises(InputError, match="is not a choice"):
        trained.train_selector(no_simulation, "two")


def test_files_that_do_not_belong_together_are_refused(kept: Path) -> None:
    (kept / SELECTOR_FILE).write_bytes(dumped(vars(TRAINED)))
    with pytest.raises(InputError, match=r"selector\.skops: is not the file that manifest\.json"):
        read_selector(kept)
    (kept / MANIFEST_FILE).write_text('{"kind": "table", "version": 1}')
    with pytest.raises(InputError, match="is not a manifest of a trained selector"):
        read_selector(kept)
    (kept / MANIFEST_FILE).unlink()
    with pytest.raises(InputError, match=r"manifest\.json: cannot be read"):
        read_selector(kept)


def test_what_would_fill_the_memory_is_not_unpacked(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(InputError, match=r"would unpack to .* bytes, more than 1000"):
        read_selector(kept)


HEADER = "cluster,library,collective,algorithm,nodes,ppn,memory,size_bytes,time_us\n"


def test_the_command_line_trains_and_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        f"c,openmpi 5,bcast,{choice.algorithm},{one.point.nodes},1,host,{one.point.nbytes},"
        f"{row.seconds * 1e6}\n"
        for one in CASES
        if one.group == "two"
        for choice, row in one.observations.items()
    ]
    (tmp_path / "t.csv").write_text(HEADER + "".join(lines))
    out = tmp_path / "mine"
    assert main(["train", str(tmp_path / "t.csv"), "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (held_out,) = told["held_out"].values()
    assert held_out["protocol"] == "leave-one-node-count-out"
    assert held_out["tuner"]["points"] == 12
    assert held_out["default"]["mean"] > held_out["tuner"]["mean"]
    assert (out / MODEL_CARD_FILE).read_text() == model_card(*read_selector(out))
    asked = ["select", str(out), "--collective", "bcast", "--nodes", "3", "--ranks", "3", "--size"]
    assert main([*asked, "1KiB", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["choice"], answer["sure"]) == ("chain", "chain")
    assert set(answer["seconds"]) == {"default", "ring", "chain"}
    assert main([*asked, "1TiB"]) == 0
    said = capsys.readouterr().out
    assert said == "no evidence for this call; the default is used\n"
    assert main([*asked, "1KiB", "--placement", "cyclic"]) == 2
    assert "knows consecutive ranks alone: leave --placement out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ("ring", None),
        ("chain", "what won at the nearest measured call stays unless"),
        ("default", "the default stays unless"),
    ],
)
def test_why_a_slower_one_is_chosen_is_said(
    chosen: str, why: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {
        "default": [3e-5, 2e-5, 4e-5],
        "chain": [2e-5, 1e-5, 3e-5],
        "ring": [1.9e-5, 1e-5, 3e-5],
    }
    _print_asked({"choice": chosen, "sure": "default", "seconds": seconds}, CASES[0].point)
    table, _, last = capsys.readouterr().out.rpartition("\n\n")
    assert f"{chosen} " in next(line for line in table.splitlines() if line.endswith("chosen"))
    assert last.startswith(why) if why else not last


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a/results.csv", "b/results.csv", "b/other.csv")]
    for number, path in enumerate(files):
        path.parent.mkdir(exist_ok=True)
        lines = [
            f"c{number},openmpi 5,bcast,{choice.algorithm},{one.point.nodes},1,host,"
            f"{one.point.nbytes},{row.seconds * 1e6}\n"
            for one in CASES
            if one.group == "two"
            for choice, row in one.observations.items()
        ]
        path.write_text(HEADER + "".join(lines))
    words = ["train", *map(str, files), str(files[2]), "--out", str(tmp_path / "mine")]
    assert main(words) == 0
    _, manifest = read_selector(tmp_path / "mine")
    names = (str(files[0]), str(files[1]), "other.csv")
    assert manifest.data == {
        name: sha256(path.read_bytes()).hexdigest() for name, path in zip(names, files, strict=True)
    }


def test_what_cannot_be_held_out_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = [f"c,openmpi 5,bcast,{name},2,1,host,64,5\n" for name in ("chain", "ring")]
    one = [f"c,openmpi 5,bcast,chain,{nodes},1,host,64,5\n" for nodes in (2, 4, 8)]
    for rows, said in ((two, "nothing could be left out"), (one, "with one algorithm alone")):
        (tmp_path / "t.csv").write_text(HEADER + "".join(rows))
        assert main(["train", str(tmp_path / "t.csv"), "--out", str(tmp_path / "mine")]) == 1
        assert said in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


REFERENCE = resources.data_directory("models") / "reference"


def test_the_reference_and_its_card() -> None:
    trained, manifest = read_selector(REFERENCE)
    assert len(manifest.data) == 5
    assert (REFERENCE / MODEL_CARD_FILE).read_text() == model_card(trained, manifest)
    selector = trained.train_selector(no_simulation, "lumi cray_mpich 8.1.29")
    inside = CallPoint("allreduce", 12, 1, "host", 1 << 20)
    assert len(selector.candidates(inside)) > 5
    assert selector.choose(replace(inside, nodes=1000)) == AlgorithmChoice()
    lumi = manifest.held_out["lumi cray_mpich 8.1.29 allreduce host"]
    assert lumi["tuner"]["mean"] < lumi["default"]["mean"]


def test_the_reference_was_trained_on_these_files(shared: Path) -> None:
    _, manifest = read_selector(REFERENCE)
    found = {path.name: path for path in (shared / "data").glob("*/*.csv")}
    for name, digest in manifest.data.items():
        assert sha256(found[name].read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ("--ranks 8", (1, 8)),
        ("--ranks 8 --nodes 2", (2, 4)),
        ("--nodes 2 --ppn 4", (2, 4)),
        ("--ranks 8 --ppn 4", (2, 4)),
        ("--ppn 8", (1, 8)),
        ("--ranks 8 --nodes 2 --ppn 4", (2, 4)),
    ],
)
def test_two_of_ranks_nodes_and_ranks_per_node_tell_the_third(
    words: str, shape: tuple[int, int]
) -> None:
    assert resolve_shape(*_shape_options(words)) == shape


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "the number of ranks is missing: give --ranks, or --nodes and --ppn"),
        ("--nodes 2", "the number of ranks is missing: give --ranks, or --nodes and --ppn"),
        (
            "--ranks 7 --nodes 2",
            "7 ranks cannot be spread evenly over 2 nodes: give --ranks as a multiple",
        ),
        (
            "--ranks 7 --ppn 2",
            "7 ranks cannot be spread over nodes of 2 each: give --ranks as a multiple",
        ),
        (
            "--ranks 8 --nodes 2 --ppn 3",
            "2 nodes of 3 ranks each have 6 ranks, not 8: leave out one",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(words: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        resolve_shape(*_shape_options(words))


def _shape_options(words: str) -> tuple[int | None, ...]:
    """What `tuner select` reads of its options."""
    parser = argparse.ArgumentParser()
    arguments(parser)
    call = "table.json --collective bcast --size 1KiB"
    read = parser.parse_args([*call.split(), *words.split()])
    return read.ranks, read.nodes, read.ppn
