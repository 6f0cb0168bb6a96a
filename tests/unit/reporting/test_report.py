"""What a page counts: shares that mix no identities, stairs, work under the roofs; files all written or not at all."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from page_samples import FACTS, H200, Made, evolved, run_view, view

from pallas_evo.devices import find_device
from pallas_evo.errors import UsageError
from pallas_evo.reporting.report import FACTORS, attained, read_report, shares, stairs, write_html
from pallas_evo.reporting.views import Step
from pallas_evo.tasks import dims_of, draw_inputs, floor, load_tasks, workload

TASKS = FACTS.tasks


def test_fast_p_is_more_than_p_times_as_fast():
    (share,) = shares(
        [view(task, score) for task, score in zip(TASKS, (0.9, 1.0, 1.0001, 1.5, 2.0, 3.0), strict=False)], TASKS
    )
    assert dict(share.fast) == {0.0: 6, 1.0: 4, 1.5: 2, 2.0: 1}
    assert share.of == 45
    assert tuple(share.fast) == FACTORS


def test_the_mean_is_geometric_and_of_the_best_alone():
    (share,) = shares([view("L1/relu", 4.0, 0.1), view("L1/exp", 1.0)], TASKS)
    assert share.geometric_mean == pytest.approx(2.0)
    assert share.correct == 2


def test_what_was_not_timed_is_correct_and_never_fast():
    (share,) = shares([view("L1/relu", 1.0, timer="untimed", device="cpu", sizes=())], TASKS)
    assert dict(share.fast) == {0.0: 1, 1.0: None, 1.5: None, 2.0: None}
    assert share.geometric_mean is None


@pytest.mark.parametrize(
    "other",
    [{"device": "NVIDIA A100-SXM4-80GB"}, {"timer": "wall"}, {"sizes": ("large",)}, {"sizes": ("large", "medium")}],
)
def test_another_identity_is_another_share(other):
    found = shares([view("L1/relu", 1.2), view("L1/relu", 3.0, **other)], TASKS)
    assert sorted(share.geometric_mean for share in found) == pytest.approx([1.2, 3.0])


def test_of_two_versions_of_a_task_the_newest_counts_though_it_is_slower():
    (share,) = shares([view("L1/relu", 3.0, version=1), view("L1/relu", 1.2, version=2)], TASKS)
    assert share.geometric_mean == pytest.approx(1.2)


def test_of_two_sources_the_faster_counts_once():
    (share,) = shares([view("L1/relu", 1.2), view("L1/relu", 1.4, source="other.sqlite")], TASKS)
    assert share.correct == 1
    assert share.geometric_mean == pytest.approx(1.4)


def test_a_strangers_task_is_shown_and_not_counted():
    report = read_report([Made(name="x", views=[view("their/op", 9.0)])], FACTS)
    assert report.shares == ()
    assert [page.view.task for page in report.pages] == ["their/op"]


def test_a_task_under_two_identities_counts_once():
    both = [
        view("L1/relu", 1.0, 0.5, rejected={"numerics": 2}),
        view("L1/relu", 1.0, 0.5, device="x", rejected={"numerics": 2}),
    ]
    report = read_report([Made(name="x", views=both)], FACTS)
    assert (report.programs, report.evaluations, report.accepted) == (2, 2, 2)
    assert report.rejected == {"numerics": 2}


def test_a_run_counts_once_for_each_source_and_the_oldest_comes_first():
    one, other = view("L1/relu", 1.0), view("L1/relu", 1.0, timer="wall")
    late, early = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    runs = [run_view(one, "a", date=late), run_view(other, "a", date=late), run_view(one, "b", date=early)]
    made = [
        Made(name="x", views=[one, other], run_views=runs),
        Made(name="y", views=[], run_views=[replace(runs[0], source="y", date=None)]),
    ]
    report = read_report(made, FACTS)
    assert report.run_count == 3
    assert [(run.source, run.id) for run in report.runs] == [
        ("y", "a"), ("made.sqlite", "b"), ("made.sqlite", "a"), ("made.sqlite", "a"),
    ]  # fmt: skip


def test_pages_come_in_the_tasks_order():
    made = Made(name="x", views=[view("their/op", 1.0), view(TASKS[3], 1.0), view(TASKS[0], 1.0)])
    assert [page.view.task for page in read_report([made], FACTS).pages] == [TASKS[0], TASKS[3], "their/op"]


def test_a_stair_has_a_step_for_each_improvement():
    def step(n, best, run="a"):
        return Step(run=run, step=n, evaluations=1, correct=1, best=best)

    found = stairs(
        [
            step(2, 0.7),
            step(0, 0.5),
            step(1, None),
            step(3, 0.6),
            step(None, 9.0),
            step(0, 0.9, "b"),
            step(0, None, "c"),
        ]
    )
    assert [(stair.run, stair.steps, stair.last) for stair in found] == [
        ("b", ((0, 0.9),), 0),
        ("a", ((0, 0.5), (2, 0.7)), 3),
    ]


def test_a_stair_takes_no_score_that_cannot_be_one():
    steps = [
        Step(run="a", step=n, evaluations=1, correct=1, best=best) for n, best in enumerate((-1.0, 0.0, 0.5, 1e300))
    ]
    assert [stair.steps for stair in stairs(steps)] == [((2, 0.5),)]


def test_work_is_the_tasks_floor():
    """Where every mask counts as set and every row is named, what a report counts is what the judge's floor counts."""
    for task in load_tasks():
        shapes = workload(task, dims_of(task, "small"), "small")
        true, found = (
            floor(task, draw_inputs(task, dims_of(task, "small"), np.random.default_rng(1))),
            FACTS.work(task.id, [array.shape for array in shapes.inputs]),
        )
        assert found is not None
        assert found.flops >= true.flops
        assert found.bytes_read >= true.bytes_read
        if task.id not in ("L1/embedding_lookup", "L3/triangle_update"):
            assert found == true


@pytest.mark.parametrize("shapes", [[], [[4]], [[4, 4], [4, 4]], [["a", 4]], [[-1, None]], "text", [[[1], [2]]]])
def test_work_at_shapes_that_are_not_the_tasks_is_not_known(shapes):
    assert FACTS.work("L1/relu", shapes) is None
    assert FACTS.work("their/op", shapes) is None


def test_the_roof_is_never_passed_by_work_that_was_not_asked_for():
    """A floor that the judge recorded from the drawn inputs bounds what counts as work."""
    made = evolved("L1/embedding_lookup").views[0]
    best = replace(made.best[0], floor_us=0.5, time_us=1.0)
    (share,) = shares([replace(made, best=(best,))], TASKS)
    peaks, (point,) = attained(share, FACTS)
    assert peaks is not None
    assert point.gb_s(1.0) == pytest.approx(peaks.bandwidth_gb_s / 2)


def test_a_device_without_peaks_has_no_roofs():
    (share,) = shares([evolved("L1/relu", device="made up").views[0]], TASKS)
    assert attained(share, FACTS) == (None, ())
    device = find_device(H200)
    assert device is not None
    assert FACTS.peaks(H200).tf32_tflop_s == device.tf32_tflop_s


def test_shapes_of_a_stranger_may_be_anything():
    made = evolved("L1/relu").views[0]
    for shape in ("text", [["a"]], [[math.nan]], [[10**400]], [[0, 0]], []):
        (share,) = shares([replace(made, best=(replace(made.best[0], shape=shape),))], TASKS)
        attained(share, FACTS)


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    report = read_report([evolved("L1/relu")], FACTS)
    write_html(report, tmp_path / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    for path in (tmp_path / "none" / "page.html", tmp_path):
        with pytest.raises(UsageError, match="expected a file that can be written"):
            write_html(report, path)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "pallas_evo.reporting.html", raising=False)
    with pytest.raises(UsageError, match=r"jinja2.*pallas-evo\[report\]"):
        write_html(read_report([], FACTS), tmp_path / "page.html")
