"""Times of all-reduce back ends from CSV: its forms, what is left out, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.importers.backend_times import BackendTime, read_backend_times

OWN = "gpu,backend,version,gpus,bytes,time_us\n"
ENGINES = "system,framework,version,op,kernel,dtype,gpus,message_size_as_recorded,time_us\n"
NCCL = "system,library,recorded_version,collective,gpus,size_bytes,time_us\n"
RECORDED = (
    "framework,version,device,op_name,kernel_source,allreduce_dtype,num_gpus,message_size,latency\n"
)


def read(tmp_path: Path, text: str) -> tuple[list[BackendTime], list[str]]:
    path = tmp_path / "times.csv"
    path.write_text(text)
    times, notes = read_backend_times([path])
    return times, [note.removeprefix(f"{path}: ") for note in notes]


@pytest.mark.parametrize(
    "text",
    [
        OWN + "H100,vLLM,0.24.0,8,2048,5.5\n",
        "\ufeff gpu , bytes,time_us,gpus,backend,version,more\r\n"
        "H100,2048,5.5,8,vllm,0.24.0,x\r\n\r\n",
        ENGINES + "H100,vllm,0.24.0,all_reduce,vllm_graph,bfloat16,8,1024,5.5\n",
        NCCL + "H100,vllm,0.24.0,all_reduce,8,2048,5.5\n",
        RECORDED + "vLLM,0.24.0,H100,all_reduce,vLLM_custom_graph,float16,8,1024,0.0055\n",
    ],
)
def test_every_form_says_the_same(tmp_path: Path, text: str) -> None:
    (time,), notes = read(tmp_path, text)
    assert replace(time, seconds=0) == BackendTime("H100", "vllm", "0.24.0", 8, 2048, 0)
    assert time.seconds == pytest.approx(5.5e-6)
    assert notes == []


def test_the_version_may_be_left_out(tmp_path: Path) -> None:
    (time,), _ = read(tmp_path, "gpu,backend,gpus,bytes,time_us\nH100,nccl,8,2048,5.5\n")
    assert time.version == ""


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    row = "H100,vllm,1,{},{},half,8,{},5\n".format
    text = ENGINES + row("all_reduce", "a_graph", 64) + row("all_reduce", "a_graph", 4 << 20)
    text += row("all_reduce", "a_graph", (4 << 20) + 1) + 2 * row("all_reduce", "a_eager", 64)
    times, notes = read(tmp_path, text + row("all_gather", "a_graph", 64))
    assert [time.nbytes for time in times] == [128, 8 << 20]
    assert notes == [
        "1 row not used: engines call NCCL above 8MiB",
        "2 rows not used: calls outside CUDA graphs, of which NCCL's times have no counterpart",
        "1 row not used: all_gather is not all_reduce",
    ]


def test_own_times_of_large_calls_count(tmp_path: Path) -> None:
    """Whoever writes this form says which back end ran."""
    (time,), _ = read(tmp_path, OWN + f"H100,vllm,1,8,{1 << 30},500\n")
    assert time.nbytes == 1 << 30


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1: expected the columns gpu, backend, gpus, bytes and time_us"),
        ("gpu,backend,gpus,bytes\n", "line 1: expected the columns gpu, backend, gpus, bytes and"),
        (OWN + "H100,vllm,1,8,2048\n", "line 2: 5 fields where the header names 6"),
        (OWN + "H100,vllm,1,8,2048,5.5", "line 2: cut off, the line does not end"),
        (OWN + "H100,vllm,1,8,2048,-5\n", "line 2: time_us cannot be '-5'"),
        (OWN + "H100,vllm,1,8,2048,0\n", "line 2: time_us cannot be 0"),
        (OWN + "\nH100,vllm,1,8,2KiB,5\n", "line 3: bytes cannot be '2KiB'"),
        (OWN + "H100,vllm,1,8,0,5\n", "line 2: bytes cannot be '0'"),
        (OWN + "H100,vllm,1,1,8,5\n", "line 2: gpus cannot be '1'"),
        (OWN + ",vllm,1,8,8,5\n", "line 2: gpu is empty"),
        (OWN + "H100, ,1,8,8,5\n", "line 2: backend is empty"),
        (
            ENGINES + "H100,vllm,1,all_reduce,k,complex,8,64,5\n",
            "line 2: dtype cannot be 'complex': expected one of bfloat16, float16, half",
        ),
        (OWN + '"' + "x" * 200_000 + '",vllm,1,8,8,5\n', "field larger than field limit"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_backend_times([path])
    assert str(caught.value).startswith(f"{path}: {sentence}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected the path of a file"):
        read_backend_times([tmp_path / "none.csv"])
