"""Files made to exhaust or mislead whoever reads them: refused in bounded time and memory."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.csv_files import HEAD, ITERATIONS, SUMMARIZED, SUMMARY
from tests.support.csv_files import ROW as TABLE_ROW
from tests.support.imb_files import ROW, block, whole
from tests.support.inspector import call, dump, metric
from tests.support.nccl_tests_files import ROW as NCCL_ROW
from tests.support.nccl_tests_files import record, table
from tests.support.osu_files import ALLREDUCE, FULL
from tests.support.properties import examples
from tests.support.ucc_files import table as ucc_table
from tuner.base.errors import InputError
from tuner.importers import RESULT_FORMATS, UserMetadata, parse_results, read_results

ROOT = Path(__file__).resolve().parents[3]
MEMORY = 2 << 30  # bytes of address space
SECONDS = 20  # of processor time
TOLD = UserMetadata(collective="bcast", nodes=2)
TEXTS = (
    ALLREDUCE + FULL,
    whole(block("Bcast", 2, ROW, ROW)),
    table(NCCL_ROW, NCCL_ROW),
    str(record()).replace("'", '"'),
    ucc_table("Allgather", total=""),
    f"{HEAD}\n{TABLE_ROW}\n{TABLE_ROW}\n",
    f"{SUMMARY}\n{SUMMARIZED}\n",
    ITERATIONS,
    dump([call(), call(2)]),
    metric() * 2,
)

READ = """
import os, sys
from pathlib import Path
from tuner.base.errors import InputError
from tuner.importers import UserMetadata, read_results
told = UserMetadata(p=2, nodes=1, collective="bcast")
path = Path(sys.argv[1])
for expression in sys.argv[2:]:
    if os.fork():  # each has its own limits, and what was imported
        if os.wait()[1]:
            sys.exit(f"while {expression[:80]} was read")
        continue
    path.write_bytes(eval(expression))
    try:
        print("read", len(read_results(path, metadata=told)))
    except InputError as reason:
        assert len(str(reason)) < 500 and "\\n" not in str(reason), str(reason)
        print(reason)
    sys.stdout.flush()
    os._exit(0)
"""

TITLE = r'b"# OSU MPI Latency Test v7\n# Size  Latency (us)\n"'
CSV = r'b"collective,size_bytes,time_us\n"'


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def said_about(path: Path, *expressions: str) -> str:
    """What reading the bytes that Python expressions stand for says, a line for each."""
    ran = subprocess.run(
        [sys.executable, "-c", READ, str(path), *expressions],
        capture_output=True,
        text=True,
        cwd=ROOT,
        preexec_fn=limited,
        env={"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


BOMBS = [
    ("b'0 ' * (33 << 20)", "more than 64 MiB"),
    (r"b'\n' * (2 << 20)", "more than 64 MiB or 1048576 lines"),
    (f"{TITLE} + b'7' * (2 << 20)", "line 3: longer than 1048576 characters"),
    (TITLE + r" + b'8 1.5\n' * 900_000", "line 250003: more than 250000 rows"),
    (TITLE + r" + b'8 ' + b'9' * 1_000_000 + b'\n'", "line 3: the latency cannot be"),
    (TITLE + r" + b'9' * 1_000_000 + b' 1.5\n'", "line 3: the size cannot be"),
    (CSV + r""" + b'bcast,8,"' + b'x\n' * 500_000""", "line "),
    (CSV + r" + b',' * 1_000_000 + b'\n'", "line 2: 1000001 fields"),
    (r"b',' * 1_000_000 + b'time_us\n'", "none of the known forms"),
    ("""b'{"results": [' + b'[' * 1_000_000""", "line 1: not JSON"),
    ("""b'{"results": [{"size": ' + b'9' * 1_000_000 + b'}]}'""", "line 1: not JSON"),
    (r"b'# Benchmarking ' + b'x' * 900_000 + b'\n' + b'1 1\n' * 200_000", "read 200000"),
    (r"b'highest\n' + b'7\n' * 1_000_000", "the name of the file"),
    (r"(b'#' + b' ' * 900_000 + b'\n') * 60", "none of the known forms"),
    ("""b'{"coll_perf":' + b'[' * 1_000_000""", "line 1: "),
    (r"""b'{"header":1}\n' + b'x' * (2 << 20)""", "line 1: none of coll_perf"),
    ("""b'{"header":{"id":"' + b'x' * (2 << 20)""", "line 1: longer than 1048576 characters"),
    ("""b'{"coll_perf":{"coll_sn":' + b'9' * 1_000_000 + b'}}'""", "line 1: "),
    (
        r"b'nccl_bus_bandwidth_gbs{' + b'a' * 900_000 + b'\n' * 2",
        "expected collectives in the file",
    ),
    (
        r"(b'nccl_collective_exec_time_microseconds{' + b'a=\"' * 1_000 + b'\n') * 20",
        "line 1: damaged: no metric",
    ),
    ("""__import__('gzip').compress(b'{"header":' + b' ' * (1 << 28), 1)""", "line 1: longer than"),
    (r"(b'# OSU ' + b'a ' * 400_000 + b'\n') * 60", "none of the known forms"),
]


@pytest.mark.weekly
def test_bombs_do_not_go_off(tmp_path: Path) -> None:
    lines = said_about(tmp_path / "bomb", *(expression for expression, _ in BOMBS)).splitlines()
    for (expression, said), line in zip(BOMBS, lines, strict=True):
        assert said in line, expression[:80]


def test_what_is_no_text_is_refused_with_its_line(tmp_path: Path) -> None:
    for content, line in (
        (gzip.compress(ALLREDUCE.encode()), 1),
        (ALLREDUCE.encode() + b"\0", 6),
        (ALLREDUCE.encode() + b"\xff 1\n\0", 6),
        (ALLREDUCE.encode("utf-16"), 1),
    ):
        (tmp_path / "a.out").write_bytes(content)
        with pytest.raises(InputError, match=f"a.out: line {line}: not text in UTF-8"):
            read_results(tmp_path / "a.out", metadata=UserMetadata(p=2, nodes=1))


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.out").write_text(content)
    with pytest.raises(InputError, match="line 1: the file is empty"):
        read_results(tmp_path / "a.out")
    for form in RESULT_FORMATS:
        with pytest.raises(InputError, match="line 1"):
            read_results(tmp_path / "a.out", form)


def test_a_pipe_that_nobody_fills_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="expected the path of a file"):
        read_results(tmp_path / "pipe")


@given(st.data())
@settings(max_examples=examples(400))
def test_any_damage_gives_readings_or_one_sentence(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = data.draw(st.integers(at, min(at + 30, len(text))))
        put = data.draw(
            st.text(st.sampled_from('0123456789.-+eE#,;"{}[] \n\tnaN\0é²x'), max_size=8)
        )
        text = text[:at] + put + text[until:]
    form = data.draw(st.sampled_from(["auto", *RESULT_FORMATS]))
    try:
        for reading in parse_results(text, form, TOLD, source="16_ring_int32.csv"):
            assert all(0 <= sample < float("inf") for sample in reading.samples)
            assert reading.nbytes is None or reading.nbytes >= 0
    except InputError as reason:
        said = str(reason)
    else:
        said = ""
    assert "\n" not in said
    assert len(said) < 500
