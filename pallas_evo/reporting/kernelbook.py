"""Training pairs: one JSON object a program, with what it was made from, the difference, and the judge's verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pallas_evo.reporting.card import Tally, kernelbook_card
from pallas_evo.reporting.dataset_rows import CHUNK, KINDS, Program, TaskFacts, plain_text, programs
from pallas_evo.reporting.views import diff_of

LINES = "kernelbook.jsonl"
CARD = "README.md"

_RESULT = (
    "Correct", "Error", "Target_Hardware", "Timer", "JAX_Version", "Pallas_Runtime", "JAX_Baseline_Runtime",
    "Pallas_Speedup", "Compile_Runtime", "Max_Diff", "Filters", "Registers", "Shared_Memory", "Roofline_Percent",
    "Samples",
)  # fmt: skip
"""The columns that say what the judge found; in `result` they have their names in small letters."""


def write_kernelbook(archive: Any, facts: Mapping[str, TaskFacts], folder: Path, *, version: str, day: str) -> Tally:
    """Write `kernelbook.jsonl` and its card into an empty folder. The TPU originals are parents only."""
    tally, pairs = Tally(), 0
    with (folder / LINES).open("w", encoding="ascii", newline="\n") as lines:
        for program, before in _with_parents(archive, facts):
            if program.origin == "tpu_original":
                continue
            tally.add(program)
            pairs += before is not None
            lines.write(json.dumps(_object(program, before), allow_nan=False) + "\n")
    (folder / CARD).write_text(kernelbook_card(tally, pairs, version=version, day=day), encoding="utf-8")
    return tally


def _with_parents(archive: Any, facts: Mapping[str, TaskFacts]) -> Iterator[tuple[Program, str | None]]:
    """Each program with the source that it was made from."""
    waiting: list[Program] = []
    for program in programs(archive, facts):
        if waiting and (len(waiting) >= CHUNK or waiting[0].task.id != program.task.id):
            yield from _join(archive, waiting)
            waiting = []
        waiting.append(program)
    yield from _join(archive, waiting)


def _join(archive: Any, some: list[Program]) -> Iterator[tuple[Program, str | None]]:
    known = {program.sha256: program.source for program in some}
    missing = {program.parent_sha256 for program in some if program.parent_sha256} - known.keys()
    if missing:
        records = archive.programs_by_key(some[0].task.id, sorted(missing))
        known.update({sha256: record.source for sha256, record in records.items()})
    for program in some:
        before = known.get(program.parent_sha256) if program.parent_sha256 else None
        if before is None and program.origin == "seed":
            before = program.task.original
        yield program, before


def _object(program: Program, before: str | None) -> dict[str, Any]:
    row = program.rows[0]  # of several verdicts the first: a timed one where there is one
    diff = program.diff if program.diff is not None or before is None else diff_of(before, program.source)
    return {
        "task": program.task.id,
        "op_name": row["Op_Name"],
        "level_id": row["Level_ID"],
        "kernel_name": row["Kernel_Name"],
        "program_id": program.sha256,
        "parent_id": program.parent_sha256,
        "generation": row["Generation"],
        "origin": program.origin,
        "license": row["License"],
        "fix_applied": row["Fix_Applied"] if program.origin == "seed" else None,
        "source_before": None if before is None else plain_text(before),
        "source_after": row["Pallas_Code"],
        "diff": None if diff is None else plain_text(diff),
        "baseline_code": row["JAX_Baseline_Code"],
        **{kind: row.get(column) for kind, column in KINDS.items()},
        "result": {name.lower(): row.get(name) for name in _RESULT},
    }
