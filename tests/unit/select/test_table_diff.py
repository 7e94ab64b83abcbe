"""What changed between two tables: words, numbers and a picture."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure

from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey, TuningTable, write_table
from tuner.report.figures import GAIN_COLOUR, LOSS_COLOUR, TEXT_COLOUR
from tuner.report.table_diff_plot import MAX_ROWS, draw_table_diff, save_table_diff, select_changes
from tuner.select.table_diff import (
    LEAVES_DEFAULT,
    OTHER_ALGORITHM,
    RETURNS_TO_DEFAULT,
    diff_tables,
    table_diff_record,
)

LAB = Cluster("lab", 8, 1, "a CPU", 2**34)
KEY = RuleKey(Collective.ALLREDUCE, 8, 1)
COMMUTATIVE = RuleKey(Collective.ALLREDUCE, 8, 1, operators="commutative")
KIB = 1024


def rule(
    lo: int,
    hi: float,
    name: str = "default",
    gain: float = 1.0,
    sizes: tuple[int, ...] = (),
    key: RuleKey = KEY,
    runner_up: str = "ring",
    basis: str = "measured",
) -> Rule:
    evidence = Evidence(
        basis if sizes else "none",
        sizes,
        (1e-3,) * len(sizes),
        (1e-3 / gain,) * len(sizes),
        gain=gain,
        gain_ci95=(gain / 1.05, gain * 1.05),
        runner_up=runner_up,
    )
    return Rule(key, lo, hi, AlgorithmChoice(name), evidence)


def table(*rules: Rule) -> TuningTable:
    return TuningTable(LAB, "openmpi 5.0.11", rules)


OLD = table(
    rule(0, 64 * KIB, sizes=(16 * KIB,)),
    rule(64 * KIB, 512 * KIB, "ring", 1.2, (128 * KIB, 256 * KIB)),
    rule(512 * KIB, math.inf, "chain", 1.3, (1024 * KIB,)),
)
NEW = table(
    rule(0, 8 * KIB),
    rule(8 * KIB, 32 * KIB, "binomial", 1.5, (16 * KIB,)),
    rule(32 * KIB, 80 * KIB, sizes=(64 * KIB,)),
    rule(80 * KIB, 512 * KIB, "rabenseifner", 1.5, (256 * KIB,)),
    rule(512 * KIB, math.inf, sizes=(1024 * KIB,)),
)


def test_every_range_that_is_decided_otherwise_is_named_with_its_gain() -> None:
    found = diff_tables(OLD, NEW)
    assert [(c.start_bytes, c.stop_bytes, c.kind) for c in found.changes] == [
        (8 * KIB, 32 * KIB, LEAVES_DEFAULT),
        (64 * KIB, 80 * KIB, RETURNS_TO_DEFAULT),
        (80 * KIB, 512 * KIB, OTHER_ALGORITHM),
        (512 * KIB, math.inf, RETURNS_TO_DEFAULT),
    ]
    gains = [c.gain for c in found.changes]
    assert [gains[0], *gains[2:]] == pytest.approx([1.5, 1.5 / 1.2, 1 / 1.3])
    assert not found.changes[1].has_gain  # no probed size of the ring lies there
    assert found.changes[2].interval[0] == pytest.approx(1.25 / 1.05 ** math.sqrt(2))
    assert found.mean_gain == pytest.approx((1.5 * 1.25 / 1.3) ** (1 / 3))
    assert found.n_unchanged == 0


def test_other_evidence_for_the_same_choice_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = (16 * KIB,)
    low = rule(0, 8 * KIB, sizes=(KIB,))
    old = table(low, rule(8 * KIB, math.inf, "ring", 1.2, sizes, basis="simulated"))
    new = table(low, rule(8 * KIB, math.inf, "ring", 1.4, sizes))
    found = diff_tables(old, new)
    assert (found.changes, found.n_unchanged) == ((), 1)
    (change,) = found.evidence_changes
    assert change.reason.startswith("now measured, was simulated alone; ring measured at 16KiB")
    (record,) = json.loads(json.dumps(table_diff_record(found)))["evidence_changes"]
    assert (record["start_bytes"], record["basis_before"]) == (8 * KIB, "simulated")
    again = table(low, rule(8 * KIB, math.inf, "ring", 1.5, sizes))
    (anew,) = diff_tables(new, again).evidence_changes
    assert not anew.has_other_basis
    assert diff_tables(new, new).evidence_changes == ()
    untold = diff_tables(table(rule(0, math.inf)), table(rule(0, math.inf, sizes=(KIB,))))
    assert untold.evidence_changes[0].reason == "now measured, was without evidence"
    for name, one in (("old.json", old), ("new.json", new), ("again.json", again)):
        write_table(one, tmp_path / name)
    for name, said in (("new.json", "ring stays; now measured"), ("again.json", "on other times")):
        before = "old.json" if name == "new.json" else "new.json"
        assert main(["table", "diff", str(tmp_path / before), str(tmp_path / name)]) == 0
        assert said in " ".join(capsys.readouterr().out.split())


def test_the_evidence_is_told_in_words() -> None:
    why = [change.reason for change in diff_tables(OLD, NEW).changes]
    assert why[0] == (
        "binomial measured at 16KiB: 1.50 times as fast as the default (1.43 to 1.58)"
    )
    assert why[1].startswith(
        "of what was measured at 64KiB nothing allowed is surely faster than the default; before,"
        " ring"
    )
    assert why[2].startswith("rabenseifner measured at 256KiB")
    assert "before, ring measured at 128KiB to 256KiB: 1.20 times" in why[2]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (
            rule(0, math.inf, sizes=(64, 16 * KIB, 64 * KIB)),
            "of what was measured at 64B to 64KiB nothing allowed is surely faster",
        ),
        (
            rule(0, math.inf, sizes=(16 * KIB,), runner_up=""),
            "nothing allowed was measured again at 16KiB but the default; before",
        ),
        (
            rule(0, math.inf, sizes=(64, 64 * KIB)),
            "not measured again at 16KiB, and the default holds at 64B to 64KiB; before",
        ),
        (
            rule(0, math.inf, sizes=(16 * KIB,), basis="learned"),
            "not measured at 16KiB for the new table, and nothing allowed is believed",
        ),
        (
            rule(0, math.inf, sizes=(64, 16 * KIB, 64 * KIB), basis="learned"),
            "not measured at every size of 64B to 64KiB for the new table, and nothing allowed",
        ),
        (rule(0, math.inf), "nothing was measured there; before"),
    ],
)
def test_a_return_says_whether_anybody_looked_again(after: Rule, said: str) -> None:
    """That nothing is faster is known only of what was measured."""
    before = table(rule(0, math.inf, "ring", 1.2, (16 * KIB,)))
    assert diff_tables(before, table(after)).changes[0].reason.startswith(said)


ANYTHING = "of what was measured at 1KiB nothing allowed is surely faster than the default"


@pytest.mark.parametrize(
    ("collective", "wishes", "said"),
    [
        (Collective.ALLREDUCE, {"rules": 3}, "of 3 rules at most none was left for it; before"),
        (
            Collective.ALLREDUCE,
            {"rules": 3, "forbidden": ["ring"]},
            f"{ANYTHING}, or of 3 rules at most none was left",
        ),
        (Collective.ALLREDUCE, {"commutative_only": True}, "the new table has rules for commut"),
        (Collective.BCAST, {"commutative_only": True}, f"{ANYTHING}; before, ring measured"),
        (Collective.ALLREDUCE, {}, f"{ANYTHING}; before, ring measured"),
        (Collective.ALLREDUCE, "nonsense", f"{ANYTHING}; before, ring measured"),
    ],
)
def test_a_return_that_was_wished_for_is_called_so(
    collective: Collective, wishes: object, said: str
) -> None:
    key = RuleKey(collective, 8, 1)
    old = table(rule(0, math.inf, "ring", 1.5, (KIB,), key))
    back = rule(0, math.inf, sizes=(KIB,), key=key)
    new = TuningTable(LAB, "openmpi 5.0.11", (back,), {"constraints": wishes})
    (change,) = diff_tables(old, new).changes
    assert change.reason.startswith(said)


def test_new_measurements_may_say_otherwise_or_the_limit_of_rules() -> None:
    again = rule(0, math.inf, sizes=(KIB,))
    again = replace(again, evidence=replace(again.evidence, default_s=(2.5e-5,)))
    new = TuningTable(LAB, "openmpi 5.0.11", (again,), {"constraints": {"rules": 3}})
    (change,) = diff_tables(table(rule(0, math.inf, "ring", 1.5, (KIB,))), new).changes
    assert change.reason.startswith(f"{ANYTHING}, or of 3 rules at most none was left")
    timeless = replace(again, evidence=Evidence("measured", (KIB,), runner_up="ring"))
    silent = TuningTable(LAB, "openmpi 5.0.11", (timeless,), {"constraints": {"rules": 3}})
    (change,) = diff_tables(table(rule(0, math.inf, "ring", 1.5, (KIB,))), silent).changes
    assert "or of 3 rules at most none was left" in change.reason


def test_equal_tables_do_not_differ_whatever_the_order_of_their_rules() -> None:
    found = diff_tables(OLD, table(*reversed(OLD.rules)))
    assert (found.changes, found.n_unchanged) == ((), 1)
    assert math.isnan(found.mean_gain)


def test_calls_that_only_one_table_knows_are_the_librarys_in_the_other() -> None:
    assert {c.kind for c in diff_tables(table(), OLD).changes} == {LEAVES_DEFAULT}
    assert {c.kind for c in diff_tables(OLD, table()).changes} == {RETURNS_TO_DEFAULT}
    why = diff_tables(OLD, table()).changes[0].reason
    assert why.startswith("nothing was measured there; before, ring")


def test_rules_for_any_operator_are_not_told_again_for_commutative_ones() -> None:
    twice = table(
        *OLD.rules,
        *(
            rule(r.start_bytes, r.stop_bytes, r.choice.algorithm, key=COMMUTATIVE)
            for r in OLD.rules
        ),
    )
    assert diff_tables(twice, OLD).changes == ()
    only = table(*OLD.rules, rule(0, math.inf, "ring", 2.0, (16 * KIB,), COMMUTATIVE))
    assert {c.key for c in diff_tables(OLD, only).changes} == {COMMUTATIVE}


def test_defaults_of_two_libraries_are_not_compared() -> None:
    assert diff_tables(OLD, TuningTable(LAB, "openmpi 5.0.12", NEW.rules)).changes
    for other in ("mpich 5.0.2", "openmpix"):
        said = f"one table is for openmpi 5.0.11, the other for {other}: .* tables of one library"
        with pytest.raises(InputError, match=said):
            diff_tables(OLD, TuningTable(LAB, other, NEW.rules))


def test_the_record_is_json(tmp_path: Path) -> None:
    record = json.loads(json.dumps(table_diff_record(diff_tables(OLD, NEW)), allow_nan=False))
    assert [each["stop_bytes"] for each in record["changes"]] == [
        32 * KIB,
        80 * KIB,
        512 * KIB,
        "inf",
    ]
    assert record["changes"][1]["gain"] is None


def test_the_command_says_what_changed_and_draws_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    write_table(OLD, old)
    write_table(NEW, new)
    assert main(["table", "diff", str(old), str(new), "--plot", str(tmp_path / "d.svg")]) == 0
    said = capsys.readouterr()
    assert "decided otherwise at some size: 1 of 1 call, in 4 ranges of sizes" in said.out
    assert "leaves the default. binomial measured at 16KiB" in said.out
    assert "1 range holds no size measured with both choices" in said.out
    assert "<svg" in (tmp_path / "d.svg").read_text()
    assert main(["table", "diff", str(old), str(old)]) == 0
    assert "nothing changed; decided alike at every size: 1 call" in capsys.readouterr().out
    assert main(["table", "diff", str(old), str(new), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["changes"]) == 4


def test_a_picture_is_not_written_over_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(OLD, tmp_path / "old.svg")
    words = ["table", "diff", str(tmp_path / "old.svg"), str(tmp_path / "old.svg")]
    assert main([*words, "--plot", str(tmp_path / "old.svg")]) == 1
    assert "old.svg" in capsys.readouterr().err


def test_a_picture_is_of_one_of_two_kinds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(OLD, tmp_path / "old.json")
    words = ["table", "diff", str(tmp_path / "old.json"), str(tmp_path / "old.json")]
    assert main([*words, "--plot", str(tmp_path / "d.jpg")]) == 2
    assert "ends in .svg or .png, or has no suffix" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]


def test_frames_of_gains_losses_and_of_what_nobody_knows_differ() -> None:
    def frames(gain: float, sizes: tuple[int, ...]) -> set[str]:
        new = table(rule(0, math.inf, "chain", gain, sizes))
        figure = Figure()
        draw_table_diff(figure, select_changes(table(), new, diff_tables(table(), new)))
        bars = [one for one in figure.axes[0].patches if to_rgba(one.get_facecolor())[3] == 0]
        return {to_hex(bar.get_edgecolor()) for bar in bars}

    drawn = [frames(gain, sizes) for gain, sizes in ((1.5, (KIB,)), (0.5, (KIB,)), (1.0, ()))]
    assert drawn == [{to_hex(GAIN_COLOUR)}, {to_hex(LOSS_COLOUR)}, {to_hex(TEXT_COLOUR)}]


def test_pictures_of_many_changes_show_the_largest(tmp_path: Path) -> None:
    keys = [RuleKey(Collective.BCAST, nodes, 1) for nodes in range(2, MAX_ROWS + 7)]
    new = table(*(rule(0, math.inf, "chain", 1 + key.nodes / 10, (KIB,), key) for key in keys))
    drawn = select_changes(table(), new, diff_tables(table(), new))
    assert (len(drawn.changes), drawn.omitted_calls) == (MAX_ROWS, 5)
    assert min(key.nodes for key in drawn.changes) == 7
    written = save_table_diff(tmp_path / "d", table(), new, diff_tables(table(), new))
    assert [path.suffix for path in written] == [".svg", ".png"]


def test_a_picture_of_no_change_says_so(tmp_path: Path) -> None:
    (path,) = save_table_diff(tmp_path / "d.svg", OLD, OLD, diff_tables(OLD, OLD))
    assert "both tables decide alike" in path.read_text()
    figure = Figure()
    draw_table_diff(figure, select_changes(OLD, OLD, diff_tables(OLD, OLD)))
    assert not figure.axes[0].axison
