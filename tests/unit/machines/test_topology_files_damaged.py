"""Texts made to exhaust whoever reads them: refused in bounded time and memory.

Each is read in a process of its own, of limited memory and processor time, so that a bomb that goes
off fails its test instead of the computer. They are forked from one that has imported everything.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.combined import NODE
from tests.support.fabrics import DOWN, NAMES, TREE, UP, fabric
from tests.support.nodes import GPUS_OF_AMD, SWITCHED, amd_smi, computer, eight
from tests.support.properties import examples
from tuner.base.errors import InputError
from tuner.machines.topology_files import parse_topology

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
MEMORY = 2 << 30  # bytes of address space, of which the imports take half
SECONDS = 20  # of processor time; the slowest takes a few

READ = """
import os, sys
from tuner.base.errors import InputError
from tuner.machines.topology_files import parse_topology
for expression in sys.argv[1:]:
    if os.fork():
        if os.wait()[1]:
            sys.exit(f"while {expression[:80]} was read")
        continue
    try:
        print("read", len(parse_topology(*eval(f"[{expression}]"))[1].nodes))
    except InputError as reason:
        assert len(str(reason)) < 400, len(str(reason))
        assert "\\n" not in str(reason)
        print(reason)
    sys.stdout.flush()
    os._exit(0)
"""

FLAT = "latency: 1us\\nbandwidth: 1GB/s\\n"
DOCTYPE = "<!DOCTYPE topology [{}]><topology version='2.0'>{}</topology>"
LOL = "".join(f"<!ENTITY a{i + 1} '{f'&a{i};' * 10}'>" for i in range(12))
ALIASES = "".join(
    f"x{i}: &x{i} [{', '.join([f'*x{i - 1}' if i else 'x'] * 10)}]\\n" for i in range(12)
)
MERGES = "".join(f"x{i}: &x{i} {{<<: [{', '.join([f'*x{i - 1}'] * 10)}]}}\\n" for i in range(1, 12))


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def said_about(*expressions: str) -> str:
    """Return one line of output for each text (and format) that a Python expression stands for."""
    ran = subprocess.run(
        [sys.executable, "-c", READ, *expressions],
        capture_output=True,
        text=True,
        cwd=ROOT,
        preexec_fn=limited,
        env={"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, f"{ran.returncode}: {ran.stderr[-2000:]}"
    return ran.stdout.strip()


YAML = [
    (f"'''{ALIASES}''', 'yaml'", "line 2: not YAML that can be read: aliases"),
    (f"'x0: &x0 {{a: 1}}\\n{MERGES}', 'yaml'", "line 2: not YAML that can be read: aliases"),
    ("'a: &a [*a]', 'yaml'", "aliases (*name) are not read: write the value out"),
    ("'[' * 1000000, 'yaml'", "nested more than 20 deep"),
    ("'{a: ' * 200000, 'yaml'", "nested more than 20 deep"),
    ("'- ' * 500000, 'yaml'", "nested more than 20 deep"),
    ("'nodes: [' + '1,' * 500000 + ']'", "more than 100000 values"),
    ("'nodes: ' + '1:' * 200000 + '1'", "longer than 1000 characters"),
    ("'nodes: ' + '9' * 900000", "longer than 1000 characters"),
    ("'x' * 2000000, 'yaml'", "2000000 bytes of YAML are too many: at most 1048576"),
    ("'é' * 600000, 'yaml'", "1200000 bytes of YAML are too many: at most 1048576"),
    ("'!!python/object/apply:os.system [\"true\"]', 'yaml'", "tags (!name) are not read"),
    ("'name: !!timestamp x'", "line 1: not YAML that can be read: tags (!name) are not read"),
    ("'!!map [a]', 'yaml'", "tags (!name) are not read"),
    ("'name: ' + '1:' * 300 + '1.0'", "not YAML that can be read: int too large"),
    ("'name: a\\nname: b\\n'", "line 2: not YAML that can be read: 'name' is written twice"),
    (f"'name: x\\nnodes: 1000000\\n{FLAT}'", "nodes must be a whole number from 1 to 65536"),
    (f"'name: x\\nnodes: 65536\\n{FLAT}'", "read 65536"),
]


XML = [
    (repr(DOCTYPE.format(LOL, "&a11;")), "the entity 'a1': XML with entities of its own"),
    (repr(DOCTYPE.format("<!ENTITY x SYSTEM 'file:///etc/passwd'>", "&x;")), "the entity 'x'"),
    (repr(DOCTYPE.format("<!ENTITY % x SYSTEM 'http://localhost/x'> %x;", "")), "entity 'x'"),
    (
        repr("<!DOCTYPE t SYSTEM 'absent.dtd'><topology version='2.0'>&x;</topology>"),
        "line 1: the entity 'x'",
    ),
    (
        "'<!DOCTYPE a [<!ATTLIST a ' + ' '.join(f'k{i} CDATA \"1\"' for i in range(10000)) + '>]>'"
        " + '<a>' + '<a/>' * 100000 + '</a>'",
        "declares attributes",
    ),
    ("'<a>' * 1000000", "line 1, element <a>: elements are nested more than 100 deep"),
    ("'<a>' + '<b/>' * 900000", "element <b>: there are more than 200000 elements"),
    (
        "'<a ' + ' '.join(f'k{i}=\"1\"' for i in range(300000)) + '/>'",
        "hwloc XML begins with <topology>",
    ),
    ("'<' + 'a' * 4000000 + '/>'", "hwloc XML begins with <topology>"),
    ("'<a>' + 'x' * 5000000", "characters of XML are too many: at most 4194304"),
    ("'<a>\\n<b></a>'", "line 2: not XML that can be read: mismatched tag"),
    ("'<a>\\ud800</a>'", "half a character"),
    ('\'<?xml version="1.0" encoding="nonsense"?><a/>\'', "hwloc XML begins with <topology>"),
]


BOARD = "<topology version='2.0'><object type='Machine'>"
LEAF = "<object type='PCIDev' pci_type='0302 [10de:1db8] [0:0]'/>"
MANY = "'SwitchName=a{0} Nodes={0}x[1-60000]\\n'.format(i) for i in range(100000)"


LISTS_OF_HOSTS = [
    ("'SwitchName=a Nodes=n[1-1000000]'", "line 1: '1-1000000' does not stand for 1 to 65536"),
    ("'SwitchName=a Nodes=n[1-' + '9' * 1000000 + ']'", "line 1: '1-9999"),
    ("'SwitchName=a Nodes=' + '[1-10]' * 20", "stands for more than 65536 names"),
    ("'SwitchName=a Nodes=' + 'n[1-60000],' * 1000 + 'x'", "stands for more than 65536 names"),
    (f"''.join({MANY})", "131"),
    ("'SwitchName=a Nodes=n[1-65536]'", "read 65536"),
    ("'SwitchName=a Nodes=b' + '\\\\\\n,b' * 1000000", "more than 65536 names"),
    ("'SwitchName=a' + ' Nodes=b' * 1000000", "line 1: a line is KEY=VALUE, each once"),
    (
        "''.join(f'SwitchName=s{i} Switches=s{i + 1}\\n' for i in range(40000))"
        " + 'SwitchName=s40000 Nodes=n'",
        "read 1",
    ),
]
MATRICES_AND_LISTS = [
    ("'GPU0\\tX\\t' + 'GPU1 ' * 1000000", "nvidia-smi's matrix begins with a line that names"),
    ("' ' + ' '.join(f'GPU{i}' for i in range(9999)) + '\\nGPU0\\tX'", "1 to 200 different"),
    ("'\\tGPU0\\nGPU0\\tX' + '\\nGPU0\\tX' * 1000000", "read 1"),
    ("'\\tGPU0\\tGPU1\\nGPU0\\tX\\tNV' + '9' * 1000000 + '\\nGPU1\\tX\\tX'", "one of X, NV#, PIX"),
    ("'\\tGPU0\\nGPU0\\tX\\t' + '0-999999,' * 400 + '7'", "read 1"),
    ("'Switch 1 \"S-1\"\\n' + 'x' * 1000000", "line 2: neither a Switch or Ca nor one of its"),
    ("'Switch 1 \"S-1\"\\n' + '#' * 40000000", "characters are too many: at most 33554432"),
    (
        '\'\\n\'.join(f\'Ca 1 "H-{i:x}" # "h{i} m0"\\n[1] "S-1"[{i}] 4xEDR\' for i in range(9999))'
        " + '\\nSwitch 1 \"S-1\"' + ''.join(f'\\n[{i}] \"H-{i:x}\"[1] 4xEDR' for i in range(9999))",
        "read 9999",
    ),
    (repr(BOARD) + " + " + repr(LEAF) + " * 9999", "not XML that can be read"),
    (
        repr(BOARD) + " + " + repr(LEAF) + " * 9999 + '</object></topology>'",
        "expected objects of type",
    ),
    (
        repr(BOARD + "<object type='Core'/>") + " + " + repr(LEAF) + " * 9999 +"
        " '</object></topology>'",
        "more than 256 GPUs, NICs, CPUs and switches",
    ),
    (
        "'<system version=\"1\">' + '<cpu affinity=\"f\"/>' * 100000 + '</system>'",
        "more than 256 GPUs, NICs, CPUs and switches",
    ),
    (
        "'<system version=\"1\"><cpu affinity=\"' + 'f' * 4000000 + '\"/></system>'",
        "affinity is written like",
    ),
    (
        repr(BOARD + "<object type='Core'/></object><distances2 name='NVLinkBandwidth'><indexes>")
        + " + '1 ' * 1000000 + '</indexes></distances2></topology>'",
        "1000000 objects are more",
    ),
    ("'combine: {fabric: /etc/passwd, node: /etc/passwd}'", "combine names files"),
]


PIECES = st.sampled_from(
    [
        "name: x\n",
        "nodes: ",
        "4\n",
        "[a, b]\n",
        "links:\n",
        "  - ",
        "{between: [a, b], ",
        "latency: 1us",
        "bandwidth: 1GB/s",
        "}",
        "\n",
        "&a ",
        "*a",
        "<<: ",
        "!!set ",
        "!!bool ",
        "!!int ",
        "|\n",
        "? ",
        ": ",
        "- ",
        "---\n",
        "%YAML 9.9\n",
        "1:1",
        "0x",
        "2024-13-45",
        "\x00",
        "\ud800",
        "\x85",
        "<topology version='2.0'>",
        "<object type='Machine'>",
        "<object type='Core'/>",
        "</object>",
        "</topology>",
        "<!DOCTYPE t [<!ENTITY a 'b'>]>",
        "&a;",
        "&#0;",
        "<![CDATA[",
        "<!--",
        "-->",
        "<?xml version='1.0'?>",
        "<?xml version='1.0' encoding='utf-16'?>",
    ]
)


@settings(max_examples=examples(500))
@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_any_text_is_a_topology_or_an_input_error(text: str) -> None:
    assert_bounded(text, None)


def assert_bounded(text: str, known_as: str | None) -> None:
    """A topology, or one short sentence."""
    said = ""
    try:
        parse_topology(text, known_as)
    except InputError as reason:
        said = str(reason)
    assert "\n" not in said
    assert len(said) < 1000


GOOD = {
    "ibnetdiscover": fabric(NAMES, UP + DOWN),
    "nvidia-smi": eight(12, "PXB"),
    "slurm": TREE,
    "rocm-smi": GPUS_OF_AMD,
    "amd-smi": amd_smi(),
    "nccl": NODE,
    "simgrid": '<platform version="4.1"><cluster id="c" radical="0-3" speed="1Gf" core="2"'
    ' prefix=""\ntopology="TORUS" topo_parameters="2,2" bw="1GBps" lat="1us"/></platform>',
    "hwloc": computer(SWITCHED, ""),
    "yaml": "name: x\nnodes: [a]\nlinks: []\n",
}
ODD = [
    "",
    "0",
    "-1",
    "9" * 400,
    "1e999",
    "[1-99999999]",
    "\x00",
    "\ud800",
    "\u0663",
    "\x1b[4m",
    '"',
    "'",
    "<",
    "&",
    "\\",
    "#",
    "X",
    "NV99",
    "S-",
    "4x",
    "=",
    ",",
    "\u2028",
]


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[str, str]:
    """A good text with lines taken out, doubled or moved, numbers replaced, or cut off."""
    name = draw(st.sampled_from(sorted(GOOD)))
    lines = GOOD[name].splitlines()
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["drop", "double", "move", "number", "letter"]))
        line, odd = lines[at], draw(st.sampled_from(ODD))
        if kind == "drop":
            lines[at] = ""
        elif kind == "double":
            lines.insert(at, line)
        elif kind == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        elif kind == "number":
            lines[at] = odd.join(re.split(r"[0-9]+", line, maxsplit=draw(st.integers(1, 3))))
        else:
            middle = draw(st.integers(0, len(line)))
            lines[at] = line[:middle] + odd + line[middle + 1 :]
    text = "\n".join(lines)
    return name, text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@settings(max_examples=examples(600))
@given(spoilt(), st.booleans())
def test_any_spoilt_file_is_a_topology_or_an_input_error(
    found: tuple[str, str], told: bool
) -> None:
    name, text = found
    assert_bounded(text, name if told else None)


@settings(max_examples=examples(200))
@given(st.binary(max_size=300), st.sampled_from([None, *sorted(GOOD)]))
def test_noise_is_an_input_error(noise: bytes, known_as: str | None) -> None:
    assert_bounded(noise.decode("latin-1"), known_as)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_what_is_spoilt_was_good(name: str) -> None:
    assert parse_topology(GOOD[name])[0] == name


INSIDE = (
    "interior: {devices: [{name: c, kind: cpu}, {name: n, kind: nic, count: 250}], links: [' + "
    "','.join(f'{{between: [c, n{i}], latency: 0us, bandwidth: 1GB/s}}' for i in range(250)) + ']}"
)
TREE = "fabric: {kind: fat_tree, per_leaf: 32, latency: 1us, bandwidth: 1GB/s}"


TOO_LARGE = [
    (f"'name: x\\nnodes: 65536\\n{TREE}'", "read 65536"),
    ("'preset: summit\\nnodes: 65536\\nnics: 128'", "make it smaller"),
    (f"'name: x\\nnodes: 65536\\n{FLAT}{INSIDE}'", "make it smaller"),
    (
        f"'name: x\\nnodes: 65536\\n{FLAT}{INSIDE.replace('kind: nic', 'kind: gpu')}'",
        "nodes have 32768000 links inside",
    ),
]


RI2 = "open('tuner/machines/presets/ri2.yaml').read()"
MACHINES = [
    (RI2, "read 32"),
    (f"{RI2}.replace('value: 32', 'value: 65537')", "from 1 to 65536, not 65537"),
    (f"{RI2}.replace('value: 32', 'value: 65536')", "read 65536"),
    (f"{RI2}.replace('count: 2, product: K80', 'count: 9999, product: K80')", "from 1 to 256"),
    (
        f"{RI2}.replace('2, product: K80', '200, product: K80').replace('  links:\\n',"
        " '  links:\\n' + '    - {among: gpu, kind: pcie, bandwidth: qpi}\\n' * 9999)",
        "more than 65536 links in a node",
    ),
    (
        f"{RI2}.replace('network: host-network-edr', 'network: {{segments: [' +"
        " '{from: 0B, alpha: 1us, rate: join}, ' * 9999 + ']}')",
        "segments must be a list of 1 to 256",
    ),
    ("'preset: dgx-h100\\nnodes: 65536\\nfabric: {kind: torus}'", "fabric lacks 'bandwidth'"),
    ("'preset: ../../../etc/passwd'", "unknown preset"),
]


@pytest.mark.representative("xml")
@pytest.mark.parametrize(
    "texts",
    [YAML, XML, LISTS_OF_HOSTS, MATRICES_AND_LISTS, TOO_LARGE, MACHINES],
    ids=["yaml", "xml", "lists of hosts", "matrices and lists", "too large", "machines"],
)
def test_what_would_exhaust_the_reader_is_refused(texts: list[tuple[str, str]]) -> None:
    said = said_about(*(expression for expression, _ in texts)).splitlines()
    for (expression, sentence), line in zip(texts, said, strict=True):
        assert sentence in line, expression[:80]
