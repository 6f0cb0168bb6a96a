"""A ShinkaEvolve run folder as views, whoever made the run: its database, and the result files beside it.

Everything in it is taken as it comes from a stranger: any column may hold anything.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pallas_evo.errors import ArchiveError
from pallas_evo.reporting.text import restored
from pallas_evo.reporting.views import (
    UNTIMED,
    Family,
    ProgramDetail,
    ProgramRow,
    RunView,
    Step,
    TaskDetail,
    TaskView,
    diff_of,
    gain,
    measured_fields,
)

TABLES = {"programs", "archive", "metadata_store"}
"""What a ShinkaEvolve database has, at least."""

_COLUMNS = (
    "id", "parent_id", "generation", "timestamp", "combined_score", "correct", "island_idx", "public_metrics",
    "private_metrics", "metadata",
)  # fmt: skip
_MOST_RESULT_BYTES = 8 << 20


class ShinkaReader:
    """Reads one run, through a connection that the command line opened for reading only."""

    def __init__(self, connection: sqlite3.Connection, folder: Path, name: str) -> None:
        self.name = name
        self._connection = connection
        self._folder = folder
        self._rows = self._load()
        self._task = self._find_task()
        self._places = {row.id: number for number, row in enumerate(self._rows)}

    def _select(self, wanted: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
            return self._connection.execute(wanted, values).fetchall()
        except sqlite3.Error as error:
            raise ArchiveError(
                f"{self.name}: expected the database of a ShinkaEvolve run, came one that cannot be read ({error})."
            ) from error

    def _load(self) -> list[ProgramRow]:
        there = {row[1] for row in self._select("PRAGMA table_info(programs)")}
        columns = ", ".join(name if name in there else "NULL" for name in _COLUMNS)
        rows = []
        self._dates: list[float] = []
        for found in self._select(f"SELECT {columns} FROM programs ORDER BY generation, timestamp"):
            values = dict(zip(_COLUMNS, found, strict=True))
            private, metadata = _mapping(values["private_metrics"]), _mapping(values["metadata"])
            correct = _truth(values["correct"])
            if (at := _number(values["timestamp"])) is not None:
                self._dates.append(at)
            rows.append(
                ProgramRow(
                    task=_text(private.get("task")) or "",
                    id=str(values["id"]),
                    parent=_text(values["parent_id"]),
                    name=_text(metadata.get("patch_name")),
                    origin="mutation" if values["parent_id"] else "seed",
                    generation=_whole(values["generation"]),
                    island=_whole(values["island_idx"]),
                    correct=correct,
                    score=_number(values["combined_score"]),
                    reason=None if correct else _text(private.get("reason")) or "not correct",
                    device=_text(private.get("device")),
                    timer=_text(private.get("timer")),
                    **_shown(_mapping(values["public_metrics"])),
                )
            )
        # ShinkaEvolve copies its first program to every island.
        first: dict[tuple[int | None, str | None], ProgramRow] = {}
        kept = []
        for row in rows:
            if row.generation != 0 or (0, row.name) not in first:
                kept.append(row)
                first.setdefault((row.generation, row.name), row)
        return kept

    def _find_task(self) -> str:
        named = Counter(row.task for row in self._rows if row.task)
        if named:
            return named.most_common(1)[0][0]
        settings = self._folder / "run.yaml"
        try:
            for line in settings.read_text(encoding="utf-8").splitlines():
                if line.startswith("task:"):
                    return line.partition(":")[2].strip().strip("'\"")
        except (OSError, UnicodeDecodeError):
            pass
        return self._folder.name or "run"

    def runs(self) -> tuple[RunView, ...]:
        """The one run."""
        correct = [row for row in self._rows if row.correct]
        views = self.tasks(best=1)
        best = views[0].best[0] if views and views[0].best else None
        same = [row for row in correct if best is not None and row.timer == best.timer]
        seed = min(same, key=lambda row: row.generation or 0).score if same else None
        return (
            RunView(
                source=self.name,
                id=self._folder.name,
                kind="shinka",
                name=self._folder.name,
                status="",
                message="",
                date=datetime.fromtimestamp(min(self._dates), UTC) if self._dates else None,
                task=self._task,
                device=best.device if best else None,
                timer=best.timer if best else None,
                programs=len(self._rows),
                evaluations=len(self._rows),
                correct=len(correct),
                best=best.score if best else None,
                seed=seed,
                gain=gain(best.score if best else None, seed),
            ),
        )

    def tasks(self, *, best: int, only: str | None = None) -> tuple[TaskView, ...]:
        """The run's task, once for each device and timer that it has scores of."""
        if only is not None and only != self._task:
            return ()
        rows = [replace(row, task=self._task) for row in self._rows]
        correct = [row for row in rows if row.correct and row.score is not None]
        keys: list[Any] = sorted({(row.timer in (None, UNTIMED), row.device or "", row.timer or "") for row in correct})
        views = []
        for key in keys or [(True, "", "")]:
            mine = [row for row in correct if (row.device or "", row.timer or "") == key[1:]]
            ranked = sorted(mine, key=lambda row: (-(row.score or 0.0), self._places[row.id]))
            first = min(mine, key=lambda row: row.generation or 0, default=None)
            views.append(
                TaskView(
                    source=self.name,
                    task=self._task,
                    version=None,
                    device=key[1] or None,
                    timer=key[2] or None,
                    sizes=(),
                    programs=len(rows),
                    evaluations=len(rows),
                    accepted=sum(bool(row.correct) for row in rows),
                    rejected=dict(Counter(row.reason or "not correct" for row in rows if not row.correct)),
                    seed=first if first is not None and not first.parent else None,
                    original=None,
                    best=tuple(replace(row, **self._measured_fields(row)) for row in ranked[:best]),
                )
            )
        return tuple(views)

    def _measured_fields(self, row: ProgramRow) -> dict[str, Any]:
        """What the result files add to the database's row; nothing where they are not ours."""
        found = measured_fields(self._evaluation(row))
        return {name: value for name, value in found.items() if value not in (None, {})}

    def detail(self, view: TaskView) -> TaskDetail:
        """Generations and islands of the run."""
        return TaskDetail(view=view, generations=self._steps(view, "generation"), islands=self._steps(view, "island"))

    def _steps(self, view: TaskView, by: str) -> tuple[Step, ...]:
        groups: dict[int | None, list[ProgramRow]] = {}
        for row in self._rows:
            groups.setdefault(getattr(row, by), []).append(row)
        return tuple(
            Step(
                run=self._folder.name,
                step=step,
                evaluations=len(rows),
                correct=sum(bool(row.correct) for row in rows),
                best=max(
                    (
                        row.score
                        for row in rows
                        if row.correct
                        and row.score is not None
                        and (row.device, row.timer) == (view.device, view.timer)
                    ),
                    default=None,
                ),
            )
            for step, rows in sorted(groups.items(), key=lambda item: (item[0] is None, item[0] or 0))
        )

    def family(self, view: TaskView, *, depth: int) -> Family:
        """The best programs with their ancestors."""
        nodes: dict[str, ProgramRow] = {}
        skipped: dict[str, int] = {}
        for row in view.best:
            chain = self._chain(row.id)
            kept = chain if len(chain) <= depth + 2 else [*chain[:depth], *chain[-2:]]
            for one, parent in zip(kept, [*kept[1:], None], strict=True):
                parent_id = parent.id if parent is not None else None
                nodes.setdefault(one.id, replace(one, task=self._task, parent=parent_id))
                if parent is not None and parent.id != one.parent:
                    skipped.setdefault(one.id, chain.index(parent) - chain.index(one) - 1)
        code = {id: self._code(id) for id in nodes}
        diffs = {
            id: diff_of(code[str(row.parent)], code[id]) if row.parent in code else None for id, row in nodes.items()
        }
        return Family(nodes=nodes, code=code, diffs=diffs, skipped=skipped)

    def _chain(self, id: str) -> list[ProgramRow]:
        chain: list[ProgramRow] = []
        step: str | None = id
        while step in self._places and all(row.id != step for row in chain):
            chain.append(self._rows[self._places[step]])
            step = chain[-1].parent
        return chain

    def _code(self, id: str) -> str:
        found = self._select("SELECT code FROM programs WHERE id = ?", id)
        return _text(found[0][0]) or "" if found else ""

    def find(self, prefix: str, task: str | None, *, limit: int = 8) -> tuple[tuple[str, str], ...]:
        """Programs whose id begins so."""
        if task not in (None, self._task):
            return ()
        return tuple((self._task, row.id) for row in self._rows if row.id.startswith(prefix))[:limit]

    def program(self, task: str, id: str) -> ProgramDetail:
        """One program in full."""
        chain = self._chain(id)
        row = replace(chain[0], task=self._task)
        code = self._code(id)
        evaluation = self._evaluation(row)
        sizes = _mapping(evaluation.get("sizes"))
        samples: dict[str, dict[str, Sequence[float]]] = {
            name: {"candidate": size["samples_us"]} for name, size in sizes.items() if size.get("samples_us")
        }
        for name, timing in _mapping(_mapping(evaluation.get("environment")).get("timing")).items():
            if isinstance(timing, dict) and timing.get("baseline_us"):
                samples.setdefault(name, {})["xla"] = timing["baseline_us"]
        feedback = self._select("SELECT text_feedback, public_metrics FROM programs WHERE id = ?", id)[0]
        measured = {
            "text_feedback": _text(feedback[0]) or "",
            "public_metrics": _mapping(feedback[1]),
            **{name: evaluation[name] for name in _EVALUATION if name in evaluation},
        }
        return ProgramDetail(
            source=self.name,
            row=replace(row, message=_text(evaluation.get("message")) or "", **self._measured_fields(row)),
            code=code,
            diff=diff_of(self._code(chain[1].id), code) if len(chain) > 1 else None,
            lineage=tuple(replace(one, task=self._task) for one in chain[1:]),
            lineage_code={chain[-1].id: self._code(chain[-1].id)} if len(chain) > 1 else {},
            measured=measured,
            samples_us=samples,
        )

    def _evaluation(self, row: ProgramRow) -> Mapping[str, Any]:
        """What our evaluator left beside ShinkaEvolve's files; of another's runs there is none."""
        path = self._folder / f"gen_{row.generation}" / "results" / "evaluation.json"
        try:
            if path.is_symlink() or path.stat().st_size > _MOST_RESULT_BYTES:
                return {}
            found = _mapping(restored(json.loads(path.read_text(encoding="utf-8"))))
            measured_fields(found)  # whether it has the form of ours
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}
        return found


_EVALUATION = ("target", "stage", "jail", "duration_s", "gates", "filters", "sizes", "compiled", "environment", "seeds")


def _shown(public: Mapping[str, Any]) -> dict[str, Any]:
    """Times that our callback puts among the metrics, for a run whose result files are gone."""
    for name in ("medium", *(key.removesuffix("_xla_us") for key in public if key.endswith("_xla_us"))):
        time, xla = _number(public.get(f"{name}_us")), _number(public.get(f"{name}_xla_us"))
        if time is not None and xla is not None:
            percent = _number(public.get(f"{name}_roofline_percent"))
            return {"size": name, "time_us": time, "xla_us": xla, "roofline_percent": percent}
    return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _truth(value: Any) -> bool:
    """A correct.json with the string "false" is stored as that text, and is no truth."""
    return value in (1, True) or (isinstance(value, str) and value.strip().lower() in ("1", "true"))
