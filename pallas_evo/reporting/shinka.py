"""A ShinkaEvolve run folder as views, whoever made the run: its database, and the result files beside it.

Everything in it is taken as it comes from a stranger: any column may hold anything.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pallas_evo.errors import ArchiveError
from pallas_evo.reporting import foreign
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
    kept_ancestors,
    measured_fields,
)

TABLES = {"programs", "archive"}
"""What a ShinkaEvolve database has, at least."""

_COLUMNS = (
    "id", "parent_id", "generation", "timestamp", "combined_score", "correct", "island_idx", "public_metrics",
    "private_metrics", "metadata",
)  # fmt: skip
_NO_REASON = "not correct"
_MOST_RESULT_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True, order=True)
class _Identity:
    """What scores must share to be compared; a stranger's run says none of it, and its scores share that."""

    newest_first: int
    untimed: bool
    device: str
    timer: str
    sizes: tuple[str, ...]

    @property
    def version(self) -> int | None:
        return -self.newest_first or None


class ShinkaReader:
    """Reads one run. `connect` opens its database for reading only, once for each query: a folder may hold a thousand
    runs, and a process may not hold a thousand files."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], folder: Path, name: str) -> None:
        self.name = name
        self._connect = connect
        self._folder = folder
        self._date: datetime | None = None
        self._identities: dict[str, _Identity] = {}
        self._hashes: dict[str, str] = {}
        self._same: dict[str, str] = {}  # a copy's id -> the id that it is shown as
        settings = self._settings()
        self.run_id = settings.get("run_id") or folder.name
        rows = self._load()
        named = Counter(row.task for row in rows if row.task)
        self._task = named.most_common(1)[0][0] if named else settings.get("task") or folder.name or "run"
        self._rows = {row.id: replace(row, task=self._task, run=self.run_id) for row in rows}

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self._folder

    def copy_to(self, path: Path) -> None:
        """Copy the run's database, as it is now, into a new file."""
        try:
            with closing(self._connect()) as connection, closing(sqlite3.connect(path)) as copy:
                connection.backup(copy)
        except sqlite3.Error as error:
            raise ArchiveError(
                f"{self.name}: expected the database of a ShinkaEvolve run, came one that cannot be read ({error})."
            ) from error

    # ---- reading -----------------------------------------------------------------------------------------------

    def _select(self, wanted: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            with closing(self._connect()) as connection:
                connection.text_factory = lambda data: data.decode("utf-8", "replace")
                return connection.execute(wanted, values).fetchall()
        except sqlite3.Error as error:
            raise ArchiveError(
                f"{self.name}: expected the database of a ShinkaEvolve run, came one that cannot be read ({error})."
            ) from error

    def _settings(self) -> dict[str, str]:
        """Task and run id, of a run that we made."""
        try:
            lines = (self._folder / "run.yaml").read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return {}
        pairs = (line.partition(":")[::2] for line in lines)
        return {key: value.strip().strip("'\"") for key, value in pairs if key in ("task", "run_id")}

    def _load(self) -> list[ProgramRow]:
        there = {row[1] for row in self._select("PRAGMA table_info(programs)")}
        columns = ", ".join(name if name in there else "NULL" for name in _COLUMNS)
        order = ", ".join(name for name in ("generation", "timestamp") if name in there) or "rowid"
        roots = {
            str(id): _sha256(code) for id, code in self._select("SELECT id, code FROM programs WHERE parent_id IS NULL")
        }
        first: dict[str, str] = {}
        rows, dates = [], []
        for found in self._select(f"SELECT {columns} FROM programs ORDER BY {order}"):
            values = dict(zip(_COLUMNS, found, strict=True))
            row = self._row(values)
            dates.append(foreign.moment(values["timestamp"]))
            if (sha256 := roots.get(row.id)) is not None:
                # Every island begins with a copy of the first program.
                self._same[row.id] = first.setdefault(sha256, row.id)
                if first[sha256] != row.id:
                    continue
            rows.append(row)
        self._date = min((date for date in dates if date is not None), default=None)
        return rows

    def _row(self, values: Mapping[str, Any]) -> ProgramRow:
        private, metadata = foreign.mapping(values["private_metrics"]), foreign.mapping(values["metadata"])
        correct = foreign.truth(values["correct"])
        id, timer = str(values["id"]), foreign.text(private.get("timer"))
        sizes = private.get("sizes")
        self._identities[id] = _Identity(
            newest_first=-(foreign.whole(private.get("task_version")) or 0),
            untimed=timer in (None, UNTIMED),
            device=foreign.text(private.get("device")) or "",
            timer=timer or "",
            sizes=tuple(sorted(map(str, sizes))) if isinstance(sizes, list) else (),
        )
        self._hashes[id] = foreign.text(private.get("candidate_sha256")) or ""
        parent = foreign.text(values["parent_id"])
        return ProgramRow(
            task=foreign.text(private.get("task")) or "",
            id=id,
            parent=parent,
            name=foreign.text(metadata.get("patch_name")),
            origin="mutation" if parent else "seed",
            generation=foreign.whole(values["generation"]),
            island=foreign.whole(values["island_idx"]),
            correct=correct,
            score=foreign.number(values["combined_score"]),
            reason=None if correct else foreign.text(private.get("reason")) or _NO_REASON,
            device=foreign.text(private.get("device")),
            timer=timer,
            **_shown(foreign.mapping(values["public_metrics"])),
        )

    def _code(self, id: str) -> str:
        found = self._select("SELECT code FROM programs WHERE id = ?", id)
        return foreign.text(found[0][0]) or "" if found else ""

    def _evaluation(self, row: ProgramRow) -> dict[str, Any]:
        """What our evaluator left beside ShinkaEvolve's files, if it is of this very program; else nothing."""
        path = self._folder / f"gen_{row.generation}" / "results" / "evaluation.json"
        try:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_RESULT_BYTES:
                return {}
            found = foreign.mapping(restored(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError, RecursionError):
            return {}
        if not found or found.get("candidate_sha256") != _sha256(self._code(row.id)):
            return {}
        timing = foreign.mapping(foreign.mapping(found.get("environment")).get("timing"))
        samples: dict[str, dict[str, Sequence[float]]] = {}
        for name, size in foreign.mapping(found.get("sizes")).items():
            if taken := foreign.samples(foreign.mapping(size).get("samples_us")):
                samples[name] = {"candidate": taken}
            if baseline := foreign.samples(foreign.mapping(timing.get(name)).get("baseline_us")):
                samples.setdefault(name, {})["xla"] = baseline
        return {**foreign.measured(found), "message": foreign.text(found.get("message")) or "", "samples_us": samples}

    def _filled(self, row: ProgramRow) -> ProgramRow:
        """The database's row with what the result files add to it."""
        found = self._evaluation(row)
        fields = {name: value for name, value in measured_fields(found).items() if value not in (None, {})}
        return replace(row, **fields, message=found.get("message", ""))

    @property
    def size(self) -> int:
        """How many programs it has, copies left out."""
        return len(self._rows)

    # ---- views -------------------------------------------------------------------------------------------------

    def runs(self) -> tuple[RunView, ...]:
        """The run, once for each identity that it has correct scores of."""
        rows = list(self._rows.values())
        correct = sum(bool(row.correct) for row in rows)
        views = []
        for identity, mine in self._ranked().items() or [(None, [])]:
            best = mine[0].score if mine else None
            seed = min(mine, key=_place).score if mine else None
            views.append(
                RunView(
                    source=self.name,
                    id=self.run_id,
                    kind="shinka",
                    name=self._folder.name,
                    status="",
                    message="",
                    date=self._date,
                    task=self._task,
                    version=identity.version if identity else None,
                    device=identity.device or None if identity else None,
                    timer=identity.timer or None if identity else None,
                    sizes=identity.sizes if identity else (),
                    programs=len(rows),
                    evaluations=len(rows),
                    correct=len(mine) if mine else correct,
                    best=best,
                    seed=seed,
                    gain=None if identity is None or identity.timer == UNTIMED else gain(best, seed),
                )
            )
        return tuple(views)

    def _ranked(self) -> dict[_Identity, list[ProgramRow]]:
        """The correct programs of each identity, best first."""
        found: dict[_Identity, list[ProgramRow]] = {}
        for row in self._rows.values():
            if row.correct and row.score is not None:
                found.setdefault(self._identities[row.id], []).append(row)
        return {key: sorted(found[key], key=lambda row: -(row.score or 0.0)) for key in sorted(found)}

    def tasks(self, *, best: int, only: str | None = None) -> tuple[TaskView, ...]:
        """The run's task, once for each identity that it has scores of."""
        if only is not None and only != self._task:
            return ()
        rows = list(self._rows.values())
        views = []
        for identity, mine in self._ranked().items() or [(None, [])]:
            first = min(mine, key=_place, default=None)
            views.append(
                TaskView(
                    source=self.name,
                    task=self._task,
                    version=identity.version if identity else None,
                    device=identity.device or None if identity else None,
                    timer=identity.timer or None if identity else None,
                    sizes=identity.sizes if identity else (),
                    programs=len(rows),
                    evaluations=len(rows),
                    accepted=sum(bool(row.correct) for row in rows),
                    rejected=dict(Counter(row.reason or _NO_REASON for row in rows if not row.correct)),
                    seed=self._filled(first) if first is not None and not first.parent else None,
                    original=None,
                    best=tuple(self._filled(row) for row in mine[:best]),
                )
            )
        return tuple(views)

    def detail(self, view: TaskView) -> TaskDetail:
        """Generations and islands of the run."""
        return TaskDetail(view=view, generations=self._steps(view, "generation"), islands=self._steps(view, "island"))

    def _steps(self, view: TaskView, by: str) -> tuple[Step, ...]:
        key = (view.version, view.device or "", view.timer or "", view.sizes)
        groups: dict[int | None, list[ProgramRow]] = {}
        for row in self._rows.values():
            groups.setdefault(getattr(row, by), []).append(row)
        found = []
        for step, rows in sorted(groups.items(), key=lambda item: (item[0] is None, item[0] or 0)):
            scores = []
            for row in rows:
                mine = self._identities[row.id]
                if row.correct and row.score is not None and (mine.version, mine.device, mine.timer, mine.sizes) == key:
                    scores.append(row.score)
            correct = sum(bool(row.correct) for row in rows)
            best = max(scores, default=None)
            found.append(Step(run=self.run_id, step=step, evaluations=len(rows), correct=correct, best=best))
        return tuple(found)

    def _chain(self, id: str) -> list[str]:
        """The program, its parent, and so on to the first; ends where a cycle would begin."""
        chain: dict[str, None] = {}
        step: str | None = id
        while step is not None and (step := self._same.get(step, step)) in self._rows and step not in chain:
            chain[step] = None
            step = self._rows[step].parent
        return list(chain)

    def family(self, view: TaskView, *, depth: int) -> Family:
        """The best programs with their ancestors."""
        parents, skipped = kept_ancestors([self._chain(row.id) for row in view.best], depth)
        code = {id: self._code(id) for id in parents}
        return Family(
            nodes={id: replace(self._filled(self._rows[id]), parent=parent) for id, parent in parents.items()},
            code=code,
            diffs={id: None if parent is None else diff_of(code[parent], code[id]) for id, parent in parents.items()},
            skipped=skipped,
        )

    def find(self, prefix: str, task: str | None, *, limit: int = 8) -> tuple[tuple[str, str], ...]:
        """Programs whose id, or sha256 where our evaluator said it, begins so."""
        if task not in (None, self._task):
            return ()
        mine = (id for id in self._rows if id.startswith(prefix) or self._hashes[id].startswith(prefix.lower()))
        found = dict.fromkeys([*(self._same[id] for id in self._same if id.startswith(prefix)), *mine])
        return tuple((self._task, id) for id in found)[:limit]

    def program(self, task: str, id: str) -> ProgramDetail:
        """One program in full."""
        chain = self._chain(id)
        row = self._filled(self._rows[chain[0]])
        evaluation = self._evaluation(row)
        samples = evaluation.pop("samples_us", {})
        feedback = self._feedback(id)
        code = self._code(id)
        return ProgramDetail(
            source=self.name,
            row=row,
            code=code,
            diff=diff_of(self._code(chain[1]), code) if len(chain) > 1 else None,
            lineage=tuple(self._rows[one] for one in chain[1:]),
            lineage_code={chain[-1]: self._code(chain[-1])} if len(chain) > 1 else {},
            measured={**feedback, **evaluation},
            samples_us=samples,
        )

    def _feedback(self, id: str) -> dict[str, Any]:
        there = {row[1] for row in self._select("PRAGMA table_info(programs)")}
        columns = ", ".join(name if name in there else "NULL" for name in ("text_feedback", "public_metrics"))
        found = self._select(f"SELECT {columns} FROM programs WHERE id = ?", id)
        return {
            "text_feedback": foreign.text(found[0][0]) or "" if found else "",
            "public_metrics": foreign.mapping(found[0][1]) if found else {},
        }


def _sha256(code: Any) -> str:
    return hashlib.sha256(str(code).encode("utf-8", "surrogatepass")).hexdigest()


def _place(row: ProgramRow) -> int:
    return row.generation or 0


def _shown(public: Mapping[str, Any]) -> dict[str, Any]:
    """Times that our callback puts among the metrics, for a run whose result files are gone."""
    for name in ("medium", *(key.removesuffix("_xla_us") for key in public if key.endswith("_xla_us"))):
        time, xla = foreign.number(public.get(f"{name}_us")), foreign.number(public.get(f"{name}_xla_us"))
        if time is not None and xla is not None:
            percent = foreign.number(public.get(f"{name}_roofline_percent"))
            return {"size": name, "time_us": time, "xla_us": xla, "roofline_percent": percent}
    return {}
