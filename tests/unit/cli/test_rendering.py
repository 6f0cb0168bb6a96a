"""How a verdict looks: JSON with exactly the keys of the contract, and a form for people that says what to change."""

from __future__ import annotations

import json

import pytest
from made_verdicts import verdict

from pallas_evo.cli.rendering import evaluation_to_json, marks, measured, print_evaluation
from pallas_evo.types import FilterResult, SizeResult

KEYS = [
    "task", "target", "correct", "combined_score", "status", "stage", "reason", "message", "gates", "filters", "sizes",
    "compiled", "ran_on", "compiled_for", "jail", "seeds", "candidate_sha256", "duration_s", "timer", "task_version",
    "text_feedback", "output", "environment",
]  # fmt: skip
INNER = {
    "gates": ["name", "passed", "reason", "message", "seconds"],
    "filters": ["passed", "value", "threshold", "message"],
    "sizes": [
        "shape", "correct", "normwise_error", "bound", "median_us", "xla_us", "floor_us", "roofline_percent",
        "samples_us",
    ],
    "compiled": ["registers", "spill_bytes", "shared_bytes", "occupancy", "ptx_bytes", "seconds"],
}  # fmt: skip


def test_json_has_exactly_the_keys_of_the_contract_in_order():
    assert list(evaluation_to_json(verdict())) == KEYS
    assert list(evaluation_to_json(verdict(), evaluation_id="e1", file="a.py")) == [*KEYS, "evaluation_id", "file"]


@pytest.mark.parametrize("key", INNER)
def test_inner_objects_have_exactly_their_keys(key):
    inner = evaluation_to_json(verdict())[key]
    for one in inner if key == "gates" else inner.values():
        assert list(one) == INNER[key]


def test_json_survives_a_round_trip_and_what_was_not_measured_is_null():
    line = json.dumps(evaluation_to_json(verdict()), allow_nan=False)
    assert "\n" not in line
    back = json.loads(line)
    assert back["sizes"]["small"] == {
        "shape": [[512, 512]], "correct": False, "normwise_error": 0.5, "bound": 2e-6, "median_us": None,
        "xla_us": None, "floor_us": None, "roofline_percent": None, "samples_us": None,
    }  # fmt: skip
    assert back["output"] == "hello from the candidate\n"


def test_people_are_told_the_gates_the_measured_values_and_what_to_change(capsys):
    print_evaluation("mine.py", verdict())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["mine.py:", "rejected", "score", "0", "(untimed)", "L1/relu", "on", "cpu"]
    assert [line.split()[:2] for line in lines[1:4]] == [["✓", "contract"], ["✗", "output_std"], ["✗", "numerics"]]
    assert lines[2].rstrip().endswith("output_std  0.75, at most 0.02")
    assert lines[-1] == "Rejected (output_std): Too alike. Read every input."
    assert any("40 registers, 8 bytes spilled, 1024 bytes shared, occupancy 50%" in line for line in lines)


def test_a_timed_score_is_not_called_untimed(capsys):
    size = SizeResult(shape=((512, 512),), correct=True, median_us=2.0, xla_us=3.0)
    timed = {"timer": "cupti", "sizes": {"medium": size}, "text_feedback": "Correct. Next: wider blocks."}
    print_evaluation("mine.py", verdict(correct=True, combined_score=1.5, status="accepted", **timed))
    out = capsys.readouterr().out
    assert "score 1.5  L1/relu" in out
    assert "2.00 us, XLA 3.00 us" in out
    assert "Next: wider blocks." in out


def test_no_colour_code_is_written_where_stdout_is_no_terminal(capsys):
    print_evaluation("[red]mine[/red].py", verdict())
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.startswith("[red]mine[/red].py: rejected")


def test_a_long_sentence_stays_on_one_line_where_stdout_is_no_terminal(capsys):
    print_evaluation("mine.py", verdict(text_feedback="word " * 100 + "end"))
    assert capsys.readouterr().out.splitlines()[-1].endswith("end")
    print_evaluation("mine.py", verdict(text_feedback="line 1\n  x = (\n      ^"))
    assert capsys.readouterr().out.splitlines()[-3:] == ["line 1", "  x = (", "      ^"]


def test_a_filters_value_may_be_missing():
    assert measured(FilterResult(passed=False, value=None, threshold=0.02, message="")) == "not finite, at most 0.02"
    assert measured(FilterResult(passed=True, value=None, threshold=None, message="")) == ""


def test_marks_fit_the_encoding():
    assert marks("utf-8") == ("✓", "✗")
    assert marks("ascii") == marks("latin-1") == marks("no-such-encoding") == ("+", "-")
