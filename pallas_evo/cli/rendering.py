"""How verdicts look: as JSON, whose keys are a contract, and for people."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from pallas_evo.types import Evaluation, FilterResult

if TYPE_CHECKING:
    from rich.console import Console


def console(file: TextIO | None = None) -> Console:
    """A console that is wide where it is no terminal, and never takes candidate text for markup."""
    from rich.console import Console

    made = Console(file=file or sys.stdout, markup=False, highlight=False, emoji=False)
    return made if made.is_terminal else Console(file=file or sys.stdout, markup=False, highlight=False, width=160)


def evaluation_to_json(evaluation: Evaluation, **more: Any) -> dict[str, Any]:
    """An evaluation as `evaluate --json` prints it; what was not measured is null. `more` is added at the end."""
    whole = asdict(evaluation)
    return {
        "task": whole["task"],
        "target": whole["target"],
        "correct": whole["correct"],
        "combined_score": whole["combined_score"],
        "status": whole["status"],
        "stage": whole["stage"],
        "reason": whole["reason"],
        "message": whole["message"],
        "gates": list(whole["gates"]),
        "filters": whole["filters"],
        "sizes": whole["sizes"],
        "compiled": {
            sm: {name: value for name, value in made.items() if name != "sm"} for sm, made in whole["compiled"].items()
        },
        "ran_on": whole["ran_on"],
        "compiled_for": list(whole["compiled_for"]),
        "jail": whole["jail"],
        "seeds": whole["seeds"],
        "candidate_sha256": whole["candidate_sha256"],
        "duration_s": whole["duration_s"],
        "timer": whole["timer"],
        "task_version": whole["task_version"],
        "text_feedback": whole["text_feedback"],
        "output": whole["output_text"],
        "environment": dict(whole["environment"]),
        **more,
    }


def print_evaluation(name: str, evaluation: Evaluation) -> None:
    """A verdict for people, on stdout: gates, what the filters measured, sizes, what the compiler made of it."""
    from rich.table import Table
    from rich.text import Text

    screen = console()
    verdict = Text(f"{name}: {evaluation.status}", style="bold green" if evaluation.correct else "bold red")
    score = f"  score {evaluation.combined_score:.4g}" + ("" if evaluation.timer != "untimed" else " (untimed)")
    where = f"on {evaluation.ran_on}" if evaluation.ran_on else "not run"
    screen.print(verdict + Text(f"{score}  {evaluation.task}  {where}", style="default"))
    passed, failed = marks(screen.encoding)
    gates = Table(box=None, show_header=False, padding=(0, 1))
    for gate in evaluation.gates:
        said = gate.reason or ""
        if gate.name in evaluation.filters:
            said = f"{said}  {measured(evaluation.filters[gate.name])}".strip()
        gates.add_row(passed if gate.passed else failed, gate.name, f"{gate.seconds:.2f} s", Text(said))
    screen.print(gates)
    for size, result in evaluation.sizes.items():
        shapes = " ".join("x".join(map(str, shape)) for shape in result.shape)
        error = (
            "" if result.normwise_error is None else f"  error {result.normwise_error:.2e}, bound {result.bound:.2e}"
        )
        times = ""
        if result.median_us is not None and result.xla_us is not None:
            times = f"  {result.median_us:.2f} us, XLA {result.xla_us:.2f} us"
        screen.print(Text(f"  {size}: {shapes}{error}{times}"))
    for sm, made in evaluation.compiled.items():
        screen.print(
            Text(
                f"  compiled for {sm}: {made.registers} registers, {made.spill_bytes} bytes spilled, "
                f"{made.shared_bytes} bytes shared, occupancy {made.occupancy:.0%}"
            )
        )
    screen.print(Text(evaluation.text_feedback), soft_wrap=True)


def measured(found: FilterResult) -> str:
    """A filter's value and the threshold that it was held against."""
    if found.threshold is None:
        return ""
    return f"{'not finite' if found.value is None else format(found.value, '.3g')}, at most {found.threshold:.3g}"


def marks(encoding: str) -> tuple[str, str]:
    """How passed and failed look in an encoding."""
    try:
        "✓✗".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "+", "-"
    return "✓", "✗"
