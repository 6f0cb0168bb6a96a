"""The terminal: hostile text moves nothing, narrow and poor screens get what they can show, pipes get plain text."""

from __future__ import annotations

import io
import re
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from pallas_evo.reporting.charts import PLAIN, bars, curve, histogram, running_best, strokes
from pallas_evo.reporting.terminal import by_step, print_overview, print_task
from pallas_evo.reporting.terminal_program import print_program
from pallas_evo.reporting.text import clean, jsonable, one_line
from pallas_evo.reporting.views import ProgramDetail, ProgramRow, RunView, Step, TaskDetail, TaskView

HOSTILE = "[bold red]x[/] \x1b[2J\x1b]0;owned\x07\x9b31m\r\b\u202eevil\u2066 :smile: \ud800 \x00\u2028end"
OURS = {
    "passed", "value", "threshold", "message", "name", "reason", "seconds", "shape", "normwise_error", "bound",
    "median_us", "registers", "spill_bytes", "shared_bytes", "occupancy", "gates", "filters", "sizes", "compiled",
    "environment", "text_feedback", "fix", "rung", "details",
}  # fmt: skip
"""Keys that we write; every other key is a name that somebody chose."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def hostile(value: Any) -> Any:
    """The same value with every string in it replaced."""
    if isinstance(value, str):
        return HOSTILE
    if is_dataclass(value):
        return replace(value, **{f.name: hostile(getattr(value, f.name)) for f in fields(value)})  # type: ignore[type-var]
    if isinstance(value, dict):
        return {key if key in OURS else hostile(key): hostile(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(hostile(item) for item in value)
    return value


ROW = ProgramRow(
    task="L1/relu", id="a" * 64, parent="b" * 64, name="wider", origin="mutation", run="run-1", generation=3, island=1,
    correct=True, score=1.25, reason=None, message="said", device="NVIDIA H200", timer="cupti", size="medium",
    shape=[[4096, 4096]], time_us=8.0, xla_us=10.0, floor_us=5.0, roofline_percent=62.5,
    filters={"output_std": {"passed": True, "value": 0.1, "threshold": 0.02, "message": "fine"}},
    registers=32, spill_bytes=0, shared_bytes=1024, occupancy=0.5, evaluation_id="e1",
)  # fmt: skip
REFUSED = replace(ROW, id="c" * 64, correct=False, score=0.0, reason="numerics", time_us=None, filters={})
ORIGINAL = ProgramRow(task="L1/relu", id="d" * 64, origin="tpu_original", name="relu (TPU original)")
RUN = RunView(
    source="runs/archive.sqlite", id="run-1", kind="evolve", name="mine", status="failed", message="it stopped",
    date=datetime(2026, 1, 1, tzinfo=UTC), task="L1/relu", version=1, device="NVIDIA H200", timer="cupti",
    sizes=("medium",), programs=3, evaluations=3, correct=2, best=1.25, seed=0.5, gain=2.5,
)  # fmt: skip
VIEW = TaskView(
    source="runs/archive.sqlite", task="L1/relu", version=1, device="NVIDIA H200", timer="cupti", sizes=("medium",),
    programs=3, evaluations=3, accepted=2, rejected={"numerics": 1}, seed=replace(ROW, id="e" * 64, score=0.5),
    original="d" * 64, best=(ROW,),
)  # fmt: skip
STEPS = tuple(Step(run="run-1", step=n, evaluations=1, correct=1, best=1.0 + n / 10) for n in range(3))
TASK = TaskDetail(view=VIEW, generations=STEPS, islands=STEPS)
GATES = [
    {"name": "output_std", "passed": True, "reason": None, "message": "fine", "seconds": 0.1},
    {"name": "numerics", "passed": False, "reason": "numerics", "message": "off", "seconds": 0.1},
]
COMPILED = {"registers": 32, "spill_bytes": 0, "shared_bytes": 1024, "occupancy": 0.5, "seconds": 0.3}
PROGRAM = ProgramDetail(
    source="runs/archive.sqlite", row=ROW, code="BLOCK_M = 64\n", diff="-BLOCK_M = 32\n+BLOCK_M = 64\n",
    lineage=(REFUSED, ORIGINAL), lineage_code={ORIGINAL.id: "BLOCK_M = 4096\n"},
    measured={
        "gates": GATES, "filters": ROW.filters, "text_feedback": "Use wider blocks.",
        "sizes": {"medium": {"shape": [[4096, 4096]], "normwise_error": 1e-7, "bound": 2e-6, "median_us": 8.0}},
        "compiled": {"sm_80": COMPILED},
        "environment": {"jax": "0.10.2", "clocks": {"sm": "1980 MHz"}},
    },
    samples_us={"medium": {"candidate": [7.9, 8.0, 8.3], "xla": [10.0, 10.1]}},
    findings=({"reason": "block_too_large", "message": "16,777,216 elements", "fix": "tiles"},),
    verifications=(
        {"rung": "judge", "passed": True, "message": "ok"},
        {"rung": "ptx", "passed": True, "message": "", "details": {"sizes": {"large": {"sm_90": COMPILED}}}},
    ),
)  # fmt: skip


def printed(show: Any, *arguments: Any, terminal: bool = False, width: int = 160, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="replace", newline="")
    screen = Console(file=file, markup=False, highlight=False, emoji=False, force_terminal=terminal, width=width)
    show(screen, *arguments)
    file.flush()
    return raw.getvalue().decode(encoding)


SHOWN = [(print_overview, [RUN.source], [RUN], [VIEW]), (print_task, TASK), (print_program, PROGRAM)]


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown[0].__name__)
def test_hostile_text_is_shown_and_moves_nothing(shown, terminal):
    show, *arguments = shown
    text = printed(show, *map(hostile, arguments), terminal=terminal)
    text = COLOURS.sub("", text)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text)
    assert "[bold red]x[/]" in text  # no markup
    assert ":smile:" in text
    assert "owned" in text


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown[0].__name__)
def test_a_pipe_gets_no_colours_and_a_poor_screen_no_boxes(shown):
    show, *arguments = shown
    assert "\x1b" not in printed(show, *arguments)
    text = printed(show, *arguments, encoding="ascii")
    assert "?" not in text
    assert text.isascii()


def test_a_narrow_terminal_leaves_out_columns_and_cuts_no_number():
    text = COLOURS.sub("", printed(print_overview, [RUN.source], [RUN], [VIEW], terminal=True, width=80))
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines() if "archive" not in line)
    for said in ("L1/relu", "1.25", "2.50x", "8.00", "10.00", "62.5%"):
        assert said in text
    assert "filters" not in text
    wide = printed(print_overview, [RUN.source], [RUN], [VIEW])
    assert "2026-01-01" in wide
    assert "filters" in wide


def test_an_overview_says_all_that_was_asked_for():
    views = [VIEW, replace(VIEW, task="L1/tanh", best=())]
    sources = [RUN.source, "runs/new/archive.sqlite"]
    text = printed(print_overview, sources, [RUN], views, ["runs/mine/programs.sqlite"])
    assert "[2] runs/new/archive.sqlite" in text
    for said in (
        "2026-01-01",
        "mine (failed)",
        "it stopped",
        "1/1",
        "No correct program yet (1): L1/tanh",
        "not counted",
    ):
        assert said in text
    assert "6 programs" in text


def test_untimed_is_never_a_speed():
    row = replace(ROW, timer="untimed", score=1.0, time_us=None, xla_us=None, roofline_percent=None)
    view = replace(VIEW, timer="untimed", sizes=(), best=(row,), seed=row)
    run = replace(RUN, timer="untimed", best=1.0, seed=1.0, gain=None)
    steps = tuple(replace(step, best=1.0) for step in STEPS)
    detail = TaskDetail(view=view, generations=steps, islands=steps)
    for terminal in (False, True):
        for text in (
            printed(print_overview, [run.source], [run], [view], terminal=terminal),
            printed(print_task, detail, terminal=terminal),
            printed(print_program, replace(PROGRAM, row=row, lineage=(row,)), terminal=terminal),
        ):
            assert "untimed" in text
            assert not re.search(r"score 1|\b1\.0+x?\b(?! MHz)", text.partition("Gates")[0])


def test_progress_is_a_curve_on_a_terminal_and_numbers_in_a_pipe():
    assert "●" in printed(print_task, TASK, terminal=True)
    piped = printed(print_task, TASK)
    assert "●" not in piped
    assert re.search(r"2 +1 +1 +1\.2 +1\.2", piped)


def test_many_generations_are_few_lines_in_a_pipe():
    steps = tuple(Step(run="run-1", step=n, evaluations=1, correct=1, best=1.0 + n // 250) for n in range(1000))
    text = printed(print_task, replace(TASK, generations=steps)).partition("Generations")[2].partition("Rejected")[0]
    assert [int(line.split()[0]) for line in text.splitlines()[2:] if line.strip()] == [0, 250, 500, 750, 999]


def test_a_program_says_all_that_was_asked_for():
    text = printed(print_program, PROGRAM)
    for said in (
        "correct", "score 1.25", "run run-1", "generation 3", "Use wider blocks.", "block_too_large",
        "mended by: tiles",
        "Lineage, 2 back", "TPU-sized original", "BLOCK_M = 4096", "+BLOCK_M = 64", "4096x4096", "8.00",
        "medium, candidate: 3 samples", "medium, xla: 2 samples", "1024", "50%", "clocks: sm 1980 MHz",
    ):  # fmt: skip
        assert said in text
    assert re.search(r"✗ +numerics +0\.100 +1e-07 +2e-06", text)
    assert re.search(r"sm_90 +large +32 +0 +1024 +50%", text)
    assert re.search(r"✓ +output_std +0\.100 +0\.1 +0\.02", text)


def test_a_long_lineage_is_cut_in_the_middle():
    lineage = tuple(replace(ROW, id=f"{number:064x}", name=f"step {number}") for number in range(50))
    text = printed(print_program, replace(PROGRAM, lineage=lineage))
    assert "Lineage, 50 back" in text
    assert "38 more" in text
    assert "step 0" in text
    assert "step 49" in text
    assert "step 20" not in text


def test_generations_of_several_runs_are_put_together():
    steps = [Step(run=run, step=step, evaluations=2, correct=1, best=best) for run, step, best in [
        ("a", 0, 1.0), ("b", 0, None), ("a", 1, 0.5), ("b", 1, 2.0), ("a", None, 9.0)
    ]]  # fmt: skip
    assert by_step(steps) == [(0, 4, 2, 1.0), (1, 4, 2, 2.0)]


def test_charts():
    assert running_best([None, 1.0, 0.5, 2.0]) == [None, 1.0, 1.0, 2.0]
    assert curve([]) == []
    assert curve([None]) == []
    assert curve([2.0, 2.0]) == ["        2 ┤●●"]
    drawn = curve([float(n) for n in range(500)], width=40)
    assert len(drawn) == 8
    assert max(map(len, drawn)) <= 52
    assert drawn[0].rstrip().endswith("●")
    assert bars({}) == []
    assert bars({"a": 4, "bb": 1}, width=8) == [" a      4 ████████", "bb      1 ██"]
    assert histogram([]) == []
    assert sum(int(line.split()[2]) for line in histogram([1.0, 1.5, 2.0, 2.0])) == 4
    assert all(line.isascii() for line in (*histogram([1.0, 2.0], draw=PLAIN), *curve([1.0, 2.0], draw=PLAIN)))
    assert strokes("ascii") is PLAIN
    assert strokes("no such encoding") is PLAIN


def test_text():
    assert clean("a\r\nb\tc") == "a\nb\tc"
    assert one_line("a\n b", 10) == "a b"
    assert len(one_line("x" * 50, 10)) == 10
    assert jsonable({"a": float("nan"), 1: (2, None, True)}) == {"a": "nan", "1": [2, None, True]}
    assert jsonable("\udc80") == "?"
