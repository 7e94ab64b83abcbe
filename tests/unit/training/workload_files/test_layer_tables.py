"""Tables of layers and profiles of PipeDream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.training.compute import ComputeRate, divide_over_layers
from tuner.training.model import FLOPS, SECONDS, Model
from tuner.training.models import build_model
from tuner.training.workload_files import load_workload, parse_workload

HEAD = "name,forward_ms,backward_ms,elements,activations\n"
GRAPH = """\
node2 -- Conv2d(3, 8, kernel_size=(3, 3)) -- forward_compute_time=4.000, \
backward_compute_time=8.000, activation_size=256.000, parameter_size=896.000
node1 -- Input -- forward_compute_time=600.000, backward_compute_time=0.000, \
activation_size=64.000, parameter_size=0.000
node3 -- Linear(in_features=8, out_features=10, bias=True) -- forward_compute_time=1.000, \
backward_compute_time=2.000, activation_size=160.000, parameter_size=360.000
\tnode1 -- node2
\tnode2 -- node3
"""


def parsed(text: str) -> Model:
    model = parse_workload(text.encode(), "own")
    assert isinstance(model, Model)
    return model


def test_a_table_of_times_is_a_model_in_the_order_of_its_rows() -> None:
    model = parsed(HEAD + "conv,1.5,3,9408+64,802816\nrelu,0.5,0,,10\nfc,1,2,1000,1000\n")
    assert model.unit == SECONDS
    assert [layer.name for layer in model.layers] == ["conv", "relu", "fc"]
    assert [tensor.elements for tensor in model.tensors] == [9408, 64, 1000]
    assert (model.layers[0].forward, model.layers[0].backward) == (1.5e-3, 3e-3)
    assert model.layers[0].activations == 802816


def test_operations_bytes_and_a_batch() -> None:
    model = parsed("name,forward_flops,backward_flops,bytes,batch\na,100,200,400,10\n")
    assert (model.unit, model.forward, model.backward, model.elements) == (FLOPS, 10, 20, 100)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "line 1: expected layers below the header"),
        (HEAD + "a,-1,2,3,\n", "line 2: forward_ms cannot be '-1'"),
        (HEAD + "a,nan,2,3,\n", "line 2: forward_ms cannot be 'nan'"),
        (HEAD + "a,1,,3,\n", "line 2: backward_ms cannot be ''"),
        (HEAD + "a,1,2,3,\nb,1,2,3,\na,1,2,3,\n", "line 4: layer 'a' is also in line 2"),
        (HEAD + ",1,2,3,\n", "line 2: give the layer a name"),
        (HEAD + "a,1,2\n", "line 2: 3 fields where the header names 5"),
        (HEAD + "a,1,2,3+0,\n", "line 2: elements cannot be '0'"),
        ("name,forward_ms,elements\na,1,2\n", "forward_ms and backward_ms, or .* are missing"),
        ("name,forward_ms,backward_ms\na,1,2\n", "one column has the sizes of tensors"),
        ("name,speed\na,1\n", "unknown column 'speed': choose one of activations,"),
        ("name,forward_ms,backward_ms,bytes\na,1,2,6\n", "line 2: bytes cannot be 6"),
        (
            "layer,name,forward_ms,backward_ms,elements\n1,a,1,2,3\n3,c,1,2,3\n",
            "line 3: layer 2 is missing, this is layer 3",
        ),
        ("name,forward_ms,backward_ms,elements,batch\na,1,2,3,8\nb,1,2,3,9\n", "line 3: batch"),
        (HEAD + 'a,"1,2,3,\n', "line 2: not a row of CSV"),
        (HEAD + "a,0,0,3,\n", "needs a layer with work"),
        ("what is this\n", "none of the known formats"),
    ],
)
def test_damaged_tables_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parsed(text)


def test_files_are_named_in_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("\n\n")
    with pytest.raises(InputError, match=r"empty\.csv: the file is empty"):
        load_workload(tmp_path / "empty.csv")
    with pytest.raises(InputError, match=r"none\.csv: expected the path of a file"):
        load_workload(tmp_path / "none.csv")
    (tmp_path / "own.csv").write_text(HEAD + "a,1,2,3,4\n")
    found = load_workload(tmp_path / "own.csv")
    assert isinstance(found, Model)
    assert found.name == "own"


def test_a_profile_is_per_sample_and_leaves_out_data_loading() -> None:
    model = parsed(GRAPH)
    assert [layer.name for layer in model.layers] == ["node1 Input", "node2 Conv2d", "node3 Linear"]
    assert model.layers[0].forward == 0
    assert model.layers[1].backward == pytest.approx(8e-3 / 4)  # 160 bytes / 4 / 10 outputs
    assert [tensor.elements for tensor in model.tensors] == [216, 8, 80, 10]


def test_the_shape_of_a_profile_is_scaled_to_a_rate() -> None:
    model = parsed(GRAPH)
    times = divide_over_layers(model, 8, ComputeRate(100.0, "own", "given"), 1e12)
    assert times.forward.sum() + times.backward.sum() + times.update == pytest.approx(0.08)
    assert times.backward[1] / times.backward[2] == pytest.approx(4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GRAPH.replace("node2 -- node3", "node2 -- node7"), "line 5: node7 is missing"),
        (GRAPH + "\tnode3 -- node2\n", "the edges form a cycle"),
        (GRAPH.replace("4.000", "-4.0"), "line 1: forward_compute_time cannot be '-4.0'"),
        (GRAPH + GRAPH, "line 6: node2 is in the file twice"),
        (GRAPH + "and more\n", "line 6: neither a node with its times nor an edge"),
    ],
)
def test_damaged_profiles_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parsed(text)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("alexnet", "alexnet"),
        ("vgg16", "vgg16"),
        ("resnet50", "resnet50"),
        ("resnet101", "resnet101"),
        ("inception_v3", "inception_v3_aux"),
    ],
)
def test_published_profiles_have_the_tensors_of_their_models(
    shared: Path, name: str, known: str
) -> None:
    found = load_workload(shared / "data" / "pipedream" / f"{name}.txt")
    assert isinstance(found, Model)
    own = sorted(tensor.elements for tensor in found.tensors)
    assert own == sorted(tensor.elements for tensor in build_model(known).tensors)
    assert found.layers[0].forward == 0  # data loading is left out


def test_a_profile_without_a_batch_counts_passes(shared: Path) -> None:
    found = load_workload(shared / "data" / "pipedream" / "gnmt.txt")
    assert isinstance(found, Model)
    assert found.sample == "pass"
    assert found.backward == pytest.approx(55.883e-3)
