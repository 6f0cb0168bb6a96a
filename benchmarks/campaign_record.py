"""What a campaign keeps: its record on the disk, and what of a verdict goes into it."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pallas_evo import tasks
from pallas_evo.archive import ProgramRecord
from pallas_evo.bench.rows import row_of
from pallas_evo.errors import UsageError
from pallas_evo.paths import seed_file

SHARED_BYTES = 163 * 1024  # what a block may have on sm_80
PACK_BYTES = 15_000_000  # a larger archive is packed at the end of a piece, so that it can be carried
ARCHIVE, PACKED = "campaign.sqlite", "campaign.sqlite.gz"
FILES = (ARCHIVE, f"{ARCHIVE}-wal", PACKED, "config.yaml", "campaign.json")


@dataclass
class State:
    """campaign.json. Whole on the disk after every change."""

    path: Path
    data: dict[str, Any] = field(default_factory=lambda: {"what": "campaign", "format": 1, "pieces": [], "tasks": {}})
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @classmethod
    def load(cls, path: Path) -> State:
        """What lies there, or a new one."""
        if not path.exists():
            return cls(path)
        try:
            data = json.loads(path.read_text())
        except ValueError as error:
            raise UsageError(f"{path}: expected a campaign's record, came something else ({error}).") from error
        if not isinstance(data, dict) or data.get("what") != "campaign" or data.get("format") != 1:
            raise UsageError(f"{path}: expected a campaign's record of format 1, came something else.")
        return cls(path, data)

    def task(self, task: str) -> dict[str, Any]:
        """A task's part, to be read or changed under the lock."""
        part: dict[str, Any] = self.data["tasks"].setdefault(task, {"finals": {}})
        return part

    def save(self) -> None:
        """Write it, all or nothing."""
        with self.lock:
            text = json.dumps(self.data, indent=1, allow_nan=False) + "\n"
            temporary = self.path.with_name(f".{self.path.name}")
            temporary.write_text(text)
            temporary.replace(self.path)


def take_over(out: Path, before: Path | None) -> None:
    """The files of an earlier piece, where `out` has none yet; an archive that is packed is unpacked."""
    out.mkdir(parents=True, exist_ok=True)
    if before is not None and before.resolve() != out.resolve() and not (out / "campaign.json").exists():
        if not (before / "campaign.json").exists():
            raise UsageError(f"{before}: expected a campaign's folder, and there is no campaign.json in it.")
        for name in FILES:  # the record last: it says that the rest is there
            if (before / name).exists():
                shutil.copyfile(before / name, out / name)
    packed, archive = out / PACKED, out / ARCHIVE
    if packed.exists():
        if not archive.exists():
            with gzip.open(packed) as source, archive.open("wb") as target:
                shutil.copyfileobj(source, target)
        packed.unlink()


def close_file(path: Path, pack_bytes: int | None = None) -> Path:
    """One file, without its log, and no larger than it must be; packed where it is over `pack_bytes`."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute("VACUUM")
    connection.close()
    if path.stat().st_size <= (PACK_BYTES if pack_bytes is None else pack_bytes):
        return path
    packed = path.with_name(PACKED)
    with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
        shutil.copyfileobj(source, target)
    path.unlink()
    return packed


def refused_because(verdict: Mapping[str, Any]) -> str | None:
    """Why a champion is none, or None: every gate, and what it becomes on an A100."""
    if not verdict["correct"]:
        return f"{verdict['reason']}: {verdict['message']}"[:500]
    compiled = verdict["compiled"].get("sm_80")
    if compiled is None:
        return "it was not compiled for sm_80"
    if compiled["spill_bytes"]:
        return f"it spills {compiled['spill_bytes']} bytes on sm_80"
    if compiled["shared_bytes"] > SHARED_BYTES:
        return f"it takes {compiled['shared_bytes']} bytes of shared memory on sm_80, more than {SHARED_BYTES}"
    return None


def small_row(verdict: Mapping[str, Any], size: str) -> dict[str, Any]:
    """What the record keeps of one size; raw samples are in the archive."""
    kept = (
        "correct", "reason", "timer", "median_us", "xla_us", "floor_us", "roofline_percent", "binds", "kernels",
        "wall_us", "wall_xla_us", "ran_on",
    )  # fmt: skip
    row = row_of(verdict, size)
    return {**{name: row[name] for name in kept}, **bytes_of(verdict["task"], size)}


def bytes_of(task: str, size: str) -> dict[str, int]:
    """What any program reads and writes at least, each byte once."""
    known = tasks.get_task(task)
    dims = tasks.dims_of(known, size)  # type: ignore[arg-type]
    read = sum(_bytes(spec.shape, spec.dtype) for spec in tasks.workload(known, dims, size).inputs)
    if task == "L1/embedding_lookup":  # only the rows that are named
        read = 4 * dims["N"] * (dims["D"] + 1)
    output = tasks.workload(known, dims, size).output
    return {"bytes_read": read, "bytes_written": _bytes(output.shape, output.dtype)}


def _bytes(shape: Sequence[int], dtype: str) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def large_bytes(task: str) -> int:
    """Of inputs and output at large."""
    return sum(bytes_of(task, "large").values())


def facts(task: str) -> dict[str, Any]:
    """What the tables need to know of a task."""
    known = tasks.get_task(task)
    return {"number": known.number, "precision": known.precision, "category": known.category}


def files_of(task: str, variants: Path) -> Iterator[tuple[str, str, Path]]:
    """(name, origin, file) of a task's seed and of its variants."""
    level, operator = task.split("/")
    yield "seed", "seed", seed_file(task)
    for file in sorted((variants / level.replace("L", "level")).glob(f"{operator}-*.py")):
        yield file.stem.partition("-")[2], "hand", file


def origin_of(lineage: Sequence[ProgramRecord]) -> str:
    """`seed`, `hand`, `mutation`, or `mutation of hand` where an ancestor was written by hand."""
    hands = [program.origin == "candidate" and program.metadata.get("written_by") == "hand" for program in lineage]
    if hands[0]:
        return "hand"
    return "mutation of hand" if any(hands) else str(lineage[0].origin)


def elite_of(verdict: Mapping[str, Any]) -> dict[str, Any]:
    noted = dict(verdict["environment"].get("elite") or {})
    reports = noted.get("sanitizer")
    noted["sanitizer"] = None if reports is None else {report["tool"]: report["errors"] for report in reports}
    return noted
