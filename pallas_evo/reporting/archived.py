"""An archive as views. It takes the archive that the command line opened, and asks it for records only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from pallas_evo.reporting import foreign
from pallas_evo.reporting.views import (
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
    verdict_first,
)


class ArchiveReader:
    """Reads an archive, opened for reading only."""

    def __init__(self, archive: Any, name: str) -> None:
        self.name = name
        self._archive = self.archive = archive
        self._ancestry: tuple[str, Mapping[str, tuple[str | None, str]]] = ("", {})

    def programs_of(self, run_id: str) -> int:
        """How many programs of a run it holds."""
        return len(self._archive.programs(run_id=run_id, with_text=False))

    def runs(self) -> tuple[RunView, ...]:
        """Its runs, oldest first; one row for each identity that a run has correct scores of."""
        return tuple(
            RunView(
                source=self.name,
                id=digest.run.id,
                kind=digest.run.kind,
                name=digest.run.name,
                status=digest.run.status,
                message=digest.run.message,
                date=digest.run.started_at,
                task=digest.run.task,
                device=(digest.identity.device or None) if digest.identity else _device_of(digest.run.environment),
                version=digest.identity.task_version if digest.identity else None,
                timer=digest.identity.timer if digest.identity else None,
                sizes=digest.identity.sizes if digest.identity else (),
                programs=digest.programs,
                evaluations=digest.evaluations,
                correct=digest.correct,
                best=digest.best_score,
                seed=digest.first_score,
                gain=gain(digest.best_score, digest.first_score) if digest.identity and digest.identity.timed else None,
            )
            for digest in self._archive.run_digests()
        )

    def tasks(self, *, best: int, only: str | None = None) -> tuple[TaskView, ...]:
        """Its tasks; of each the newest version first, timed identities before untimed ones."""
        identities: dict[str, list[Any]] = defaultdict(list)
        for found in self._archive.identities(only):
            if found.correct:
                identities[found.identity.task].append(found.identity)
        seeds: dict[str, list[str]] = defaultdict(list)
        originals: dict[str, str] = {}
        for root in self._archive.roots():
            if root.origin == "seed":
                seeds[root.task].append(root.sha256)
            else:
                originals[root.task] = root.sha256
        ranked: list[tuple[Any, Any, ProgramRow | None, list[ProgramRow]]] = []
        for counts in self._archive.counts():
            if only is not None and counts.task != only:
                continue
            mine = sorted(identities[counts.task], key=lambda one: (-one.task_version, not one.timed, one.device))
            for identity in mine:
                stand = self._archive.standing(counts.task, seeds[counts.task], identity)
                seed = next((_row(stand[key]) for key in reversed(seeds[counts.task]) if key in stand), None)
                rows = [_row(record) for record in self._archive.best(counts.task, identity, limit=best)]
                ranked.append((counts, identity, seed, rows))
            if not mine:
                ranked.append((counts, None, None, []))
        filled = self._filled([row for _, _, seed, rows in ranked for row in (*rows, *((seed,) if seed else ()))])
        return tuple(
            TaskView(
                source=self.name,
                task=counts.task,
                version=identity.task_version if identity else None,
                device=(identity.device or None) if identity else None,
                timer=identity.timer if identity else None,
                sizes=identity.sizes if identity else (),
                programs=counts.programs,
                evaluations=counts.evaluations,
                accepted=counts.accepted,
                rejected=dict(counts.rejected),
                seed=filled[seed.evaluation_id] if seed else None,
                original=originals.get(counts.task),
                best=tuple(filled[row.evaluation_id] for row in rows),
            )
            for counts, identity, seed, rows in ranked
        )

    def _filled(self, rows: Sequence[ProgramRow]) -> dict[str | None, ProgramRow]:
        """The rows with what was measured and where they come from, by evaluation."""
        measured = self._archive.measured([row.evaluation_id for row in rows if row.evaluation_id])
        keys: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            keys[row.task].add(row.id)
        programs = {
            (task, key): program
            for task, wanted in keys.items()
            for key, program in self._archive.programs_by_key(task, sorted(wanted), with_text=False).items()
        }
        return {
            row.evaluation_id: replace(
                row,
                **_origin_fields(programs[row.task, row.id], row.run),
                **measured_fields(_plain(measured[row.evaluation_id])),
            )
            for row in rows
        }

    def detail(self, view: TaskView) -> TaskDetail:
        """Generations and islands of a task."""
        steps = self._archive.steps(view.task, self._identity(view))
        return TaskDetail(view=view, generations=_steps(steps, "generation"), islands=_steps(steps, "island"))

    def _identity(self, view: TaskView) -> Any:
        for found in self._archive.identities(view.task):
            one = found.identity
            if (one.task_version, one.device or None, one.timer, one.sizes) == (
                *(view.version, view.device, view.timer, view.sizes),
            ):
                return one
        return None

    def _parents(self, task: str) -> Mapping[str, tuple[str | None, str]]:
        """Each program's parent and origin; kept, because several views of one task follow each other."""
        if self._ancestry[0] != task:
            self._ancestry = (task, self._archive.ancestry(task))
        return self._ancestry[1]

    def family(self, view: TaskView, *, depth: int) -> Family:
        """The best programs with their ancestors."""
        parents, skipped = kept_ancestors([_chain(row.id, self._parents(view.task)) for row in view.best], depth)
        programs = self._archive.programs_by_key(view.task, list(parents))
        nodes = self._judged(view.task, list(parents), programs, self._identity(view))
        code = {key: programs[key].source or "" for key in parents}
        return Family(
            nodes={key: replace(node, parent=parents[key]) for key, node in nodes.items()},
            code=code,
            diffs={
                key: None if parent is None else diff_of(code[parent], code[key]) for key, parent in parents.items()
            },
            skipped=skipped,
        )

    def _judged(
        self, task: str, keys: Sequence[str], programs: Mapping[str, Any], identity: Any = None
    ) -> dict[str, ProgramRow]:
        """A row for each program, by what stands under the identity; without one, by what speaks for it."""
        verdicts = self._archive.evaluations_by_key(task, keys)
        stand = self._archive.standing(task, keys, identity) if identity is not None else {}
        mine = {key: stand.get(key) or verdict_first(verdicts.get(key, ())) for key in keys}
        measured = self._archive.measured([one.id for one in mine.values() if one is not None])
        rows = {}
        for key, verdict in mine.items():
            program = programs[key]
            row = ProgramRow(task=task, id=key)
            if verdict is not None:
                row = replace(_row(verdict), **measured_fields(_plain(measured[verdict.id])))
            rows[key] = replace(row, **_origin_fields(program, row.run))
        return rows

    def find(self, prefix: str, task: str | None, *, limit: int = 8) -> tuple[tuple[str, str], ...]:
        """Programs whose sha256 begins so; those of one task where it is named."""
        found = self._archive.find_programs(prefix.lower(), task, limit=limit)
        return tuple((one.task, one.sha256) for one in found)

    def program(self, task: str, id: str) -> ProgramDetail:
        """One program in full."""
        chain = _chain(id, self._parents(task))
        programs = self._archive.programs_by_key(task, chain, with_text=False)
        rows = self._judged(task, chain, programs)
        roots = [key for key in chain[1:] if programs[key].origin in _ROOTS or key == chain[-1]]
        texts = self._archive.programs_by_key(task, [id, *roots])
        verdicts = self._archive.evaluations_by_key(task, [id]).get(id, ())
        mine = verdict_first(verdicts)
        measured: dict[str, Any] = {}
        samples: dict[str, dict[str, Sequence[float]]] = defaultdict(dict)
        if mine is not None:
            record = self._archive.measured([mine.id], with_samples=True)[mine.id]
            measured = {
                "date": mine.created_at,
                "target": mine.target,
                "stage": mine.stage,
                "jail": mine.jail,
                "duration_s": mine.duration_s,
                "evaluations": len(verdicts),
                **_plain(record),
            }
            for one in record.samples:
                samples[one.size][one.slot] = one.samples_us
        return ProgramDetail(
            source=self.name,
            row=rows[id],
            code=texts[id].source or "",
            diff=texts[id].diff,
            lineage=tuple(rows[key] for key in chain[1:]),
            lineage_code={key: texts[key].source or "" for key in roots},
            measured=measured,
            samples_us=dict(samples),
            findings=tuple(asdict(one) for one in self._archive.findings(program=(task, id))),
            verifications=tuple(asdict(one) for one in self._archive.verifications(program=(task, id))),
        )


_MEASURED = ("gates", "filters", "sizes", "compiled", "environment")
_ROOTS = ("seed", "tpu_original")


def _chain(id: str, parents: Mapping[str, tuple[str | None, str]]) -> list[str]:
    """The program, its parent, and so on to the first; ends where a cycle would begin."""
    chain: dict[str, None] = {}
    step: str | None = id
    while step is not None and step in parents and step not in chain:
        chain[step] = None
        step = parents[step][0]
    return list(chain)


def _device_of(environment: Mapping[str, Any]) -> str | None:
    device = environment.get("device") or environment.get("gpu")
    return device if isinstance(device, str) else None


def _plain(record: Any) -> dict[str, Any]:
    """What was measured, held to its form: an archive may be a stranger's too."""
    found = foreign.measured({name: getattr(record, name) for name in _MEASURED})
    return {name: found[name] for name in _MEASURED}


def _steps(records: Sequence[Any], by: Literal["generation", "island"]) -> tuple[Step, ...]:
    """The archive's steps, put together by generation or by island, run by run in order."""
    groups: dict[tuple[str, int | None], list[Any]] = defaultdict(list)
    for record in records:
        groups[record.run_id, getattr(record, by)].append(record)
    return tuple(
        Step(
            run=run,
            step=step,
            evaluations=sum(one.evaluations for one in mine),
            correct=sum(one.correct for one in mine),
            best=max((one.best_score for one in mine if one.best_score is not None), default=None),
        )
        for (run, step), mine in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] is None, item[0][1]))
    )


def _row(record: Any) -> ProgramRow:
    return ProgramRow(
        task=record.identity.task,
        id=record.candidate_sha256,
        run=record.run_id,
        correct=record.correct,
        score=record.combined_score,
        reason=record.reason,
        message=record.message,
        device=record.identity.device or None,
        timer=record.identity.timer,
        evaluation_id=record.id,
    )


def _origin_fields(program: Any, run: str | None) -> dict[str, Any]:
    """Where a program comes from; generation and island are those of the run that is named with them."""
    return {
        "parent": program.parent_sha256,
        "name": program.name,
        "origin": program.origin,
        "run": program.run_id or run,
        "generation": program.generation,
        "island": program.island,
    }
