"""The dataset as files: `level_1.parquet` to `level_3.parquet`, all rows once more as `kernels.jsonl`, and a card.

Rows are written as they are read. Needs pyarrow, the extra `export`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pallas_evo.reporting.card import Tally, dataset_card
from pallas_evo.reporting.dataset_columns import COLUMNS, NAMES
from pallas_evo.reporting.dataset_rows import TaskFacts, programs

LEVELS = (1, 2, 3)
LINES = "kernels.jsonl"
CARD = "README.md"

_GROUP_CHARACTERS = 32 << 20  # of text in one row group, which is what a writer and a reader hold at once
_GROUP_ROWS = 10_000

_TEXT = pa.string()
_TYPES = {
    "text": _TEXT,
    "whole": pa.int64(),
    "real": pa.float64(),
    "truth": pa.bool_(),
    "filters": pa.list_(
        pa.struct(
            [
                ("name", _TEXT),
                ("passed", pa.bool_()),
                ("value", pa.float64()),
                ("threshold", pa.float64()),
                ("message", _TEXT),
            ]
        )
    ),
    "samples": pa.list_(pa.struct([("size", _TEXT), ("slot", _TEXT), ("samples_us", pa.list_(pa.float64()))])),
}

SCHEMA = pa.schema(
    [
        pa.field(one.name, _TYPES[one.kind], metadata={"how": one.how, **({"unit": one.unit} if one.unit else {})})
        for one in COLUMNS
    ]
)


def file_of(level: int) -> str:
    """The name of a level's file."""
    return f"level_{level}.parquet"


def write_dataset(archive: Any, facts: Mapping[str, TaskFacts], folder: Path, *, version: str, day: str) -> Tally:
    """Write all files into an empty folder.

    Args:
        archive: an open `pallas_evo.archive.Archive`.
        facts: the tasks that are exported, by id.
        version: of pallas_evo, for the card.
        day: the day of the export, for the card.
    """
    tally = Tally()
    with (folder / LINES).open("w", encoding="ascii", newline="\n") as lines:
        for level in LEVELS:
            group = _Group()
            with pq.ParquetWriter(folder / file_of(level), SCHEMA, compression="zstd") as writer:
                for row in _rows(archive, facts, level, tally):
                    lines.write(json.dumps(row, allow_nan=False) + "\n")
                    group.add(row)
                    if group.full:
                        writer.write_batch(group.taken())
                if group:  # a level without rows is a table without row groups: `datasets` reads no empty one
                    writer.write_batch(group.taken())
    (folder / CARD).write_text(dataset_card(tally, version=version, day=day), encoding="utf-8")
    return tally


def _rows(archive: Any, facts: Mapping[str, TaskFacts], level: int, tally: Tally) -> Iterator[dict[str, Any]]:
    for program in programs(archive, facts, level):
        tally.add(program)
        for row in program.rows:
            yield {name: row.get(name) for name in NAMES}


class _Group:
    """Rows that will be one row group, by column."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in NAMES}
        self._characters = 0

    def add(self, row: Mapping[str, Any]) -> None:
        for name, values in self._columns.items():
            value = row[name]
            values.append(value)
            if isinstance(value, str):
                self._characters += len(value)

    def __len__(self) -> int:
        return len(self._columns["Program_ID"])

    @property
    def full(self) -> bool:
        return self._characters >= _GROUP_CHARACTERS or len(self) >= _GROUP_ROWS

    def taken(self) -> pa.RecordBatch:
        """The rows as a batch; the group is empty after that."""
        columns, self._columns, self._characters = self._columns, {name: [] for name in NAMES}, 0
        arrays = [pa.array(columns[field.name], type=field.type) for field in SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
