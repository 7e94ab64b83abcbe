"""Texts made to exhaust whoever reads them: refused in bounded time and memory.

Each is read in a child process of limited memory and processor time, so that a bomb that goes off
fails its test instead of the computer.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import InputError
from tuner.topologies import parse_topology

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 2 << 30  # bytes of address space, of which the imports take half
SECONDS = 20  # of processor time; the slowest takes a few, imports included

READ = """
import sys
from tuner.errors import InputError
from tuner.topologies import parse_topology
text = eval(sys.argv[1])
try:
    print("read", len(parse_topology(text)[1].nodes))
except InputError as reason:
    assert len(str(reason)) < 400, len(str(reason))
    assert "\\n" not in str(reason)
    print(reason)
"""

FLAT = "latency: 1us\\nbandwidth: 1GB/s\\n"
DOCTYPE = "<!DOCTYPE topology [{}]><topology version='2.0'>{}</topology>"
LOL = "".join(f"<!ENTITY a{i + 1} '{f'&a{i};' * 10}'>" for i in range(12))
ALIASES = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}' if i else 'x'] * 10)}]\\n"
                  for i in range(12))  # fmt: skip
MERGES = "".join(f"x{i}: &x{i} {{<<: [{', '.join([f'*x{i - 1}'] * 10)}]}}\\n"
                 for i in range(1, 12))  # fmt: skip


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def said_about(expression: str) -> str:
    """What reading the text that a Python expression stands for says."""
    ran = subprocess.run(
        [sys.executable, "-c", READ, expression], capture_output=True, text=True, cwd=ROOT,
        preexec_fn=limited, env={"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, f"{ran.returncode}: {ran.stderr[-2000:]}"
    return ran.stdout.strip()


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        (f"'''{ALIASES}'''", "line 2: not YAML that can be read: aliases"),
        (f"'x0: &x0 {{a: 1}}\\n{MERGES}'", "line 2: not YAML that can be read: aliases"),
        ("'a: &a [*a]'", "aliases (*name) are not read: write the value out"),
        ("'[' * 1000000", "nested more than 20 deep"),
        ("'{a: ' * 200000", "nested more than 20 deep"),
        ("'- ' * 500000", "nested more than 20 deep"),
        ("'nodes: [' + '1,' * 500000 + ']'", "more than 100000 values"),
        ("'nodes: ' + '1:' * 200000 + '1'", "longer than 1000 characters"),
        ("'nodes: ' + '9' * 900000", "longer than 1000 characters"),
        ("'x' * 2000000", "2000000 characters of YAML are too many: at most 1048576"),
        ("'!!python/object/apply:os.system [\"true\"]'", "tags (!name) are not read"),
        ("'name: !!timestamp x'", "line 1: not YAML that can be read: tags (!name) are not read"),
        ("'!!map [a]'", "tags (!name) are not read"),
        ("'name: ' + '1:' * 300 + '1.0'", "not YAML that can be read: int too large"),
        ("'name: a\\nname: b\\n'", "line 2: not YAML that can be read: 'name' is written twice"),
        (f"'name: x\\nnodes: 1000000\\n{FLAT}'", "nodes must be a whole number from 1 to 65536"),
        (f"'name: x\\nnodes: 65536\\n{FLAT}'", "read 65536"),
    ],
)
def test_yaml(expression: str, sentence: str) -> None:
    assert sentence in said_about(expression)


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        (repr(DOCTYPE.format(LOL, "&a11;")), "the entity 'a1': XML with entities of its own"),
        (repr(DOCTYPE.format("<!ENTITY x SYSTEM 'file:///etc/passwd'>", "&x;")), "the entity 'x'"),
        (repr(DOCTYPE.format("<!ENTITY % x SYSTEM 'http://localhost/x'> %x;", "")), "entity 'x'"),
        (repr("<!DOCTYPE t SYSTEM 'absent.dtd'><topology version='2.0'>&x;</topology>"),
         "line 1: the entity 'x'"),
        ("'<!DOCTYPE a [<!ATTLIST a ' + ' '.join(f'k{i} CDATA \"1\"' for i in range(10000)) + '>]>'"
         " + '<a>' + '<a/>' * 100000 + '</a>'", "declares attributes"),
        ("'<a>' * 1000000", "line 1, element <a>: elements are nested more than 100 deep"),
        ("'<a>' + '<b/>' * 900000", "element <b>: there are more than 200000 elements"),
        ("'<a ' + ' '.join(f'k{i}=\"1\"' for i in range(300000)) + '/>'",
         "hwloc XML begins with <topology>"),
        ("'<' + 'a' * 4000000 + '/>'", "hwloc XML begins with <topology>"),
        ("'<a>' + 'x' * 5000000", "characters of XML are too many: at most 4194304"),
        ("'<a>\\n<b></a>'", "line 2: not XML that can be read: mismatched tag"),
        ("'<a>\\ud800</a>'", "half a character"),
        ("'<?xml version=\"1.0\" encoding=\"nonsense\"?><a/>'", "hwloc XML begins with <topology>"),
    ],
)  # fmt: skip
def test_xml(expression: str, sentence: str) -> None:
    assert sentence in said_about(expression)


PIECES = st.sampled_from([
    "name: x\n", "nodes: ", "4\n", "[a, b]\n", "links:\n", "  - ", "{between: [a, b], ",
    "latency: 1us", "bandwidth: 1GB/s", "}", "\n", "&a ", "*a", "<<: ", "!!set ",
    "!!bool ", "!!int ", "|\n", "? ", ": ",
    "- ", "---\n", "%YAML 9.9\n", "1:1", "0x", "2024-13-45", "\x00", "\ud800", "\x85",
    "<topology version='2.0'>", "<object type='Machine'>", "<object type='Core'/>", "</object>",
    "</topology>", "<!DOCTYPE t [<!ENTITY a 'b'>]>", "&a;", "&#0;", "<![CDATA[", "<!--", "-->",
    "<?xml version='1.0'?>", "<?xml version='1.0' encoding='utf-16'?>",
])  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_any_text_is_a_topology_or_an_input_error(text: str) -> None:
    said = ""
    try:
        parse_topology(text)
    except InputError as reason:
        said = str(reason)
    assert "\n" not in said
    assert len(said) < 1000
