"""An archive's programs as rows of the dataset: one for each program and each verdict of it that stands.

The archive is read in chunks of keys, so that memory does not grow with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CHUNK = 200  # programs read at once; with 4 texts of 100 KB each a chunk is 80 MB

UNTIMED = "untimed"
OFFLINE_MODEL = "pallas-evo-offline"
KINDS = {"jaxpr": "Jaxpr", "stablehlo": "StableHLO", "triton_ir": "Triton_IR", "ptx_sm_80": "PTX_sm_80"}
"""An intermediate text's kind in the archive -> its column."""

_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+() -]{1,64})")


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """What a dataset says of a task beside its programs."""

    id: str
    number: int
    level: int
    version: int
    original: str | None
    baseline: str
    seed_sha256: str | None
    fix: str | None


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program with what was said of it, as plain values. `rows` has at least one entry."""

    task: TaskFacts
    sha256: str
    source: str
    parent_sha256: str | None
    diff: str | None
    origin: str
    seed_sha256: str | None
    rows: tuple[Mapping[str, Any], ...] = field(repr=False)


def programs(archive: Any, facts: Mapping[str, TaskFacts], level: int | None = None) -> Iterator[Program]:
    """Every program of the archive's tasks, in task number order, oldest first.

    Args:
        archive: an open `pallas_evo.archive.Archive`.
        facts: of the tasks that are exported; programs of others are left out.
        level: of one level only.
    """
    for task in sorted(facts.values(), key=lambda one: one.number):
        if level in (None, task.level):
            yield from _of_task(archive, task)


def _of_task(archive: Any, task: TaskFacts) -> Iterator[Program]:
    ancestry = archive.ancestry(task.id)
    seeds = _seeds(ancestry, task.seed_sha256)
    keys = list(ancestry)
    for start in range(0, len(keys), CHUNK):
        chunk = keys[start : start + CHUNK]
        records = archive.programs_by_key(task.id, chunk)
        verdicts = archive.evaluations_by_key(task.id, chunk)
        stand = {sha256: standing(verdicts.get(sha256, ()), task.version) for sha256 in chunk}
        ids = [verdict.id for one in stand.values() for verdict in one]
        measured = archive.measured(ids, with_samples=True)
        texts = archive.texts(ids, list(KINDS))
        for sha256 in chunk:
            record = records[sha256]
            origin = _origin(record, task)
            head = _head(task, record, origin, seeds.get(sha256))
            rows = [
                head | _verdict(verdict, measured.get(verdict.id), texts.get(verdict.id, ()))
                for verdict in stand[sha256]
            ]
            if not rows:
                rows = [head | {"Error": _unjudged(archive, task, record, verdicts.get(sha256, ()))}]
            yield Program(
                task=task,
                sha256=sha256,
                source=record.source,
                parent_sha256=ancestry[sha256][0],
                diff=record.diff,
                origin=origin,
                seed_sha256=seeds.get(sha256),
                rows=tuple(rows),
            )


def standing(verdicts: Sequence[Any], version: int) -> list[Any]:
    """Of a program's evaluation records, oldest first, those that stand: the newest of each device, timer and sizes.

    A device that found the program wrong last has that verdict only. Where a program was timed anywhere, or refused
    on any device, correct verdicts without a time add nothing and are left out; what never came to run counts only
    where nothing else is there. Verdicts under another version of the task are about another task.
    """
    by_device: dict[str, list[Any]] = {}
    for verdict in verdicts:
        if verdict.identity.task_version == version:
            by_device.setdefault(verdict.identity.device, []).append(verdict)
    never_ran = by_device.pop("", [])
    wrong, timed, untimed = [], [], []
    for mine in by_device.values():
        if not mine[-1].correct:
            wrong.append(mine[-1])
            continue
        last_wrong = max((place for place, verdict in enumerate(mine) if not verdict.correct), default=-1)
        newest = {verdict.identity: verdict for verdict in mine[last_wrong + 1 :]}
        timed += [verdict for identity, verdict in newest.items() if identity.timed]
        untimed += [verdict for identity, verdict in newest.items() if not identity.timed]
    return timed + wrong or untimed[-1:] or never_ran[-1:]


def _seeds(ancestry: Mapping[str, tuple[str | None, str]], known: str | None) -> dict[str, str]:
    """Program -> the seed that it descends from; its own key for a seed."""
    found: dict[str, str | None] = {}
    for program in ancestry:
        chain: list[str] = []
        step: str | None = program
        seed: str | None = None
        while step is not None and step in ancestry and step not in chain:
            if step in found:
                seed = found[step]
                break
            chain.append(step)
            if ancestry[step][1] == "seed" or step == known:
                seed = step
                break
            step = ancestry[step][0]
        found.update(dict.fromkeys(chain, seed))
    return {program: seed for program, seed in found.items() if seed is not None}


def _origin(record: Any, task: TaskFacts) -> str:
    if record.origin in ("seed", "tpu_original"):
        return str(record.origin)
    if record.sha256 == task.seed_sha256:
        return "seed"
    if record.origin == "candidate":
        return "hand"
    model = record.metadata.get("model_name")
    if not isinstance(model, str) or not model:
        return "mutation"
    return "offline mutator" if OFFLINE_MODEL in model else plain_text(model.partition("@http")[0])  # no address


def _head(task: TaskFacts, record: Any, origin: str, seed: str | None) -> dict[str, Any]:
    """What a row says of the program itself."""
    operator = task.id.partition("/")[2]
    spdx = _SPDX.search(record.source)
    return {
        "Op_Name": operator,
        "Level_ID": task.level,
        "Task_ID": task.number,
        "Pallas_Code": plain_text(record.source),
        "Pallas_Code_Original": task.original,
        "JAX_Baseline_Code": task.baseline,
        "Framework": "JAX Pallas",
        "Backend": "tpu" if origin == "tpu_original" else "triton",
        "Fix_Applied": task.fix if seed is not None else None,
        "Kernel_Name": plain_text(record.name) if record.name else f"{operator}-{record.sha256[:12]}",
        "Program_ID": record.sha256,
        "Parent_ID": record.parent_sha256,
        "Generation": record.generation,
        "Seed_SHA256": seed,
        "License": spdx.group(1).strip() or None if spdx else None,
        "Origin": origin,
    }


def _verdict(verdict: Any, measured: Any | None, texts: Sequence[Any]) -> dict[str, Any]:
    """What a row says of one verdict. What was not measured is left out."""
    found: dict[str, Any] = {
        "Correct": bool(verdict.correct),
        "Error": None if verdict.correct else plain_text(f"{verdict.reason}: {verdict.message}"),
        "Target_Hardware": plain_text(verdict.identity.device) or None,
        "Timer": plain_text(verdict.identity.timer),
        **{KINDS[one.kind]: plain_text(one.text) for one in texts},
    }
    if measured is None:
        return found
    sizes = measured.sizes
    timed = [name for name, size in sizes.items() if positive(size.get("median_us")) is not None]
    shown = sizes["medium"] if "medium" in timed else sizes[timed[0]] if timed else {}
    kernel, baseline = positive(shown.get("median_us")), positive(shown.get("xla_us"))
    made = measured.compiled.get("sm_80", {})
    seconds = finite(made.get("seconds"))
    errors = [error for size in sizes.values() if (error := finite(size.get("normwise_error"))) is not None]
    jax = measured.environment.get("jax")
    return found | {
        "Pallas_Runtime": kernel / 1000 if kernel is not None else None,
        "JAX_Baseline_Runtime": baseline / 1000 if baseline is not None else None,
        "Pallas_Speedup": baseline / kernel if kernel is not None and baseline is not None else None,
        "Compile_Runtime": seconds * 1000 if seconds is not None else None,
        "Max_Diff": max(errors, default=None),
        "Filters": [
            {
                "name": plain_text(name),
                "passed": bool(one["passed"]),
                "value": finite(one.get("value")),
                "threshold": finite(one.get("threshold")),
                "message": plain_text(one.get("message") or ""),
            }
            for name, one in measured.filters.items()
        ],
        "Registers": made.get("registers"),
        "Shared_Memory": made.get("shared_bytes"),
        "Roofline_Percent": finite(shown.get("roofline_percent")),
        "JAX_Version": plain_text(jax) if isinstance(jax, str) else None,
        "Samples": [
            {
                "size": one.size,
                "slot": one.slot,
                "samples_us": [finite(sample) for sample in one.samples_us],
            }
            for one in measured.samples
        ],
    }


def _unjudged(archive: Any, task: TaskFacts, record: Any, verdicts: Sequence[Any]) -> str | None:
    """What is known of a program that no standing verdict is about."""
    if verdicts:
        versions = ", ".join(str(one) for one in sorted({verdict.identity.task_version for verdict in verdicts}))
        return f"judged under version {versions} of the task only, which is at {task.version} now"
    if record.origin != "tpu_original":
        return None
    findings = archive.findings(program=(task.id, record.sha256))
    return "; ".join(plain_text(f"{one.reason}: {one.message}") for one in findings) or None


def plain_text(text: str) -> str:
    """The text as UTF-8 can hold it: half of a surrogate pair, which no file format takes, becomes its escape."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def finite(value: Any) -> float | None:
    """A finite number as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def positive(value: Any) -> float | None:
    """A time: finite and over zero, since nothing takes no time; None for anything else."""
    found = finite(value)
    return found if found is not None and found > 0 else None
