"""The measurements behind the rules of one call, and the reasons that are derived from them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.core.table import AlgorithmChoice, Evidence, Rule, RuleKey
from tuner.select.call_evidence import MeasuredTime, explain_rule, measured_times

LAB = Cluster("lab", 4, 1, "a CPU", 2**34)
KEY = RuleKey(Collective.BCAST, 4, 1)
CHAIN = AlgorithmChoice("chain", {"segment": 8192})


def series(seconds: float, algorithm: str = "default", launch: int = 0) -> Measurement:
    draw = np.random.default_rng([launch, len(algorithm)])
    samples = tuple((seconds * np.exp(0.02 * draw.standard_normal(12))).tolist())
    return Measurement("collective", "bcast", 4, 1, 4, 1024, samples, algorithm, {}, launch=launch)


def measured(*entries: Measurement) -> list[MeasuredTime]:
    return measured_times(Measurements(LAB, "openmpi 5.0.11", {}, entries))


def rule(choice: AlgorithmChoice, basis: str, sizes: tuple[int, ...], runner_up: str = "") -> Rule:
    gain = 1.0 if choice.is_default else 1.5
    evidence = Evidence(
        basis,
        sizes,
        (3e-3,) * len(sizes),
        (3e-3 / gain,) * len(sizes),
        gain=gain,
        gain_ci95=(gain / 1.1, gain * 1.1),
        runner_up=runner_up,
    )
    return Rule(KEY, 512, 1 << 20, choice, evidence)


def time(gain: float, interval: tuple[float, float], is_faster: bool = False) -> MeasuredTime:
    return MeasuredTime(1024, CHAIN, 20, 2, 1e-3, 9e-4, 1.1e-3, gain, interval, is_faster)


def test_candidates_have_gains_over_the_default_and_their_samples() -> None:
    found = measured(
        *(series(3e-3, launch=n) for n in range(3)),
        *(series(1e-3, "chain", launch=n) for n in range(3)),
        *(series(4e-3, "binomial", launch=n) for n in range(3)),
    )
    assert [each.choice.algorithm for each in found] == ["chain", "default", "binomial"]
    chain, default, binomial = found
    assert (chain.nbytes, chain.samples, chain.launches) == (1024, 36, 3)
    assert chain.gain == pytest.approx(3.0, rel=0.05)
    assert chain.gain is not None
    assert chain.gain_ci95 is not None
    assert chain.gain_ci95[0] < chain.gain < chain.gain_ci95[1]
    assert (chain.is_faster, binomial.is_faster) == (True, False)
    assert (default.gain, default.gain_ci95) == (None, None)
    assert default.low < default.seconds < default.high


def test_without_the_default_there_are_times_but_no_gains() -> None:
    (chain,) = measured(series(1e-3, "chain"))
    assert chain.seconds == pytest.approx(1e-3, rel=0.02)
    assert chain.gain is None


@pytest.mark.parametrize(
    ("basis", "opening"),
    [("measured", "Measured at 1KiB:"), ("learned", "Learned: not"), ("simulated", "Simulated:")],
)
def test_a_choice_is_explained_by_its_evidence(basis: str, opening: str) -> None:
    text = explain_rule(rule(CHAIN, basis, (1024,), "ring(segment=65536)"), [], {})
    assert text.startswith(opening)
    assert "1.50 times as fast as the default (95 % interval 1.36 to 1.65)" in text
    assert text.endswith("Next best: ring (segment=64KiB).")


def test_a_predicted_choice_says_how_likely_it_is_slower() -> None:
    known = rule(CHAIN, "learned", (1024,))
    known = replace(known, evidence=replace(known.evidence, slowdown_probability=0.034))
    assert "Over 5 % slower with a probability of 3.4%." in explain_rule(known, [], {})


def test_an_accepted_choice_names_the_program() -> None:
    text = explain_rule(rule(CHAIN, "measured", (1024, 4096)), [], {"acceptance": {}})
    assert text.startswith("Measured in a C program at 2 sizes from 1KiB to 4KiB")


@pytest.mark.parametrize(
    ("own", "times", "provenance", "words"),
    [
        (("none", ()), [], {}, "Nothing was measured here (512B to 1MiB)"),
        (("learned", (1024,)), [], {}, "default itself was not measured everywhere here (1KiB)"),
        (("measured", (1024,)), [], {}, "nothing allowed is surely faster than the default."),
        (("measured", (1024,), "chain"), [], {}, "next best: chain."),
        (
            ("measured", (1024,)),
            [time(1.03, (0.97, 1.09))],
            {},
            "the best, chain (segment=8KiB) at 1KiB, is 1.03 times as fast",
        ),
        (("measured", (1024,)), [time(1.4, (1.3, 1.5), True)], {}, "it reorders operands"),
        (
            ("measured", (1024,), "chain"),
            [time(1.4, (1.3, 1.5), True)],
            {"acceptance": {}},
            "did not win again in a C program",
        ),
    ],
)
def test_why_the_default_stays(
    own: tuple[Any, ...], times: list[MeasuredTime], provenance: dict[str, Any], words: str
) -> None:
    assert words in explain_rule(rule(AlgorithmChoice(), *own), times, provenance)


def test_times_of_other_sizes_do_not_explain_a_rule() -> None:
    kept = rule(AlgorithmChoice(), "measured", (65536,))
    assert "the best" not in explain_rule(kept, [time(1.03, (0.97, math.inf))], {})


def test_a_choice_without_any_evidence_says_so() -> None:
    assert explain_rule(rule(CHAIN, "none", ()), [], {}) == "Chosen without evidence."
