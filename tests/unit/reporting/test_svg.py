"""Charts: where things lie, what they say, and that they are well formed whatever they are given."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from hostile_texts import TEXTS
from page_samples import FACTS, H200, evolved, view

from pallas_evo.reporting import svg
from pallas_evo.reporting.report import attained, shares, stairs
from pallas_evo.reporting.svg import Scale
from pallas_evo.reporting.views import Step


def parts(chart: str, tag: str, kind: str = "") -> list[ElementTree.Element]:
    return [
        one for one in ElementTree.fromstring(chart).iter(tag) if kind in (one.get("class") or "").split() or not kind
    ]


def percent(one: ElementTree.Element, name: str) -> float:
    return float(str(one.get(name)).removesuffix("%"))


@pytest.mark.parametrize(
    ("low", "high", "log"), [(0, 1, False), (0.91, 0.93, False), (-3, 1e6, False), (1e-6, 10, True), (0.2, 7, True)]
)
def test_a_scale_runs_from_end_to_end_with_round_ticks(low, high, log):
    scale = Scale(low, high, log=log)
    assert scale.at(low) == 0
    assert scale.at(high) == pytest.approx(1)
    assert scale.at(high * 10 + 1) == 1
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(low * 0.999 - 1e-9 <= tick <= high * 1.001 for tick in ticks)
    assert all(a < b for a, b in pairwise(ticks))


def test_a_logarithmic_scale_takes_what_has_no_logarithm():
    assert Scale(0.5, 2, log=True).at(0) == Scale(0.5, 2, log=True).at(-1) == 0


def test_speed_puts_seed_and_best_on_their_sides_of_xla():
    (share,) = shares([view("L1/relu", 2.0)], FACTS.tasks)
    scale = svg.speed_scale([share])
    chart = svg.speed(scale, 2.0, 0.7, "said")
    (xla,), (best,), (seed,) = (
        parts(chart, "line", "xla"),
        parts(chart, "circle", "best"),
        parts(chart, "circle", "ring"),
    )
    assert percent(seed, "cx") < percent(xla, "x1") < percent(best, "cx")
    assert not parts(svg.speed(scale, 2.0, None, "said"), "circle", "ring")


def test_the_curve_of_fast_p_falls_at_each_score():
    (share,) = shares([view("L1/relu", 0.5), view("L1/exp", 1.2), view("L1/gelu", 1.2)], FACTS.tasks)
    steps = [line for line in parts(svg.fast(share), "line", "best") if line.get("y1") == line.get("y2")]
    heights = [float(str(line.get("y1"))) for line in steps]
    assert heights == sorted(heights)
    assert [round(percent(line, "x2") * 2.5) for line in steps] == [50, 120, 120, 250]


def test_progress_has_a_stair_for_each_run_and_none_without_generations():
    steps = [
        Step(run=run, step=n, evaluations=1, correct=1, best=0.5 + n / 10 * k)
        for k, run in enumerate("ab", 1)
        for n in range(4)
    ]
    chart = svg.progress(stairs(steps), seed=0.5, title="t")
    assert parts(chart, "line", "best")
    assert parts(chart, "line", "other")
    assert [text.text for text in parts(chart, "text") if text.text in ("seed", "XLA")] == ["XLA", "seed"]
    assert svg.progress(stairs(steps[:1]), seed=None, title="t") == ""
    assert svg.progress((), seed=1.0, title="t") == ""


@pytest.mark.parametrize("scores", [[1.0] * 4, [1e-9, 2e-9], [0.5, 1e6], [7.0, 7.0]])
def test_progress_takes_any_scores(scores):
    steps = [Step(run="a", step=7 * n, evaluations=1, correct=1, best=score) for n, score in enumerate(scores)]
    ElementTree.fromstring(svg.progress(stairs(steps), seed=scores[0], title="t"))
    ElementTree.fromstring(svg.spark(stairs(steps)[0], title="t"))


def test_points_of_the_roofline_lie_under_the_roofs():
    (share,) = shares(
        [evolved(task).views[0] for task in ("L1/relu", "L1/matmul", "L3/flash_attention", "L1/one_hot")], FACTS.tasks
    )
    peaks, points = attained(share, FACTS)
    assert peaks is not None
    chart = svg.roofline(peaks, points, title="t")
    assert len(parts(chart, "circle", "best")) == 3  # one_hot must do no arithmetic
    assert len(parts(chart, "line", "roof")) == 2
    for point in points:
        roof = min(peaks.tf32_tflop_s * 1e3, point.intensity * peaks.bandwidth_gb_s)
        assert point.gflop_s(point.time_us) <= roof * 1.001
    assert svg.roofline(peaks, [point for point in points if not point.flops], title="t") == ""


def test_a_filter_over_its_threshold_lies_right_of_the_line():
    chart = svg.strip([("f", [("a", 0.01, 0.02), ("b", 0.03, 0.02), ("c", 0.0, 0.0), ("d", 1.0, 0.0)])])
    (line,) = parts(chart, "line", "roof")
    good, bad = parts(chart, "circle", "best"), parts(chart, "circle", "bad")
    assert [percent(one, "cx") < percent(line, "x1") for one in good] == [True, True]
    assert [percent(one, "cx") > percent(line, "x1") for one in bad] == [True, True]


@pytest.mark.parametrize("name", TEXTS)
def test_charts_stay_well_formed_under_any_name(name):
    text = TEXTS[name]
    (share,) = shares([view(text, 1.2, device=H200)], (text,))
    steps = [Step(run=text, step=n, evaluations=1, correct=1, best=1 + n) for n in range(3)]
    charts = [
        svg.fast(share),
        svg.speed(svg.speed_scale([share]), 1.0, 0.5, text),
        svg.progress(stairs(steps), seed=None, title=text),
        svg.spark(stairs(steps)[0], title=text),
        svg.strip([(text, [(text, 0.1, 0.2)])]),
    ]
    for chart in charts:
        tree = ElementTree.fromstring(chart)
        assert {one.tag for one in tree.iter()} <= {"svg", "title", "line", "text", "circle", "rect"}
        assert not any(key.startswith("on") or "href" in key for one in tree.iter() for key in one.attrib)
        assert len(chart) < 20_000
