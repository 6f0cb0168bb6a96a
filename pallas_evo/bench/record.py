"""The record of one bench on the disk: one JSON file, whole after every result. A kill loses what was under way."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pallas_evo.errors import PallasEvoError, UsageError

FILE = "bench.json"
FORMAT = 1


class Record:
    """A bench's results. Every change goes to the file before the call returns; it may be made from any thread.

    Args:
        folder: made where it is missing.
        resume: go on with the record that lies there.

    Raises:
        UsageError: a record lies there and `resume` is not set, or what lies there is none.
    """

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        self.path = folder / FILE
        self._lock = threading.Lock()
        self.resumed = False
        self.data: dict[str, Any] = {"what": "pallas_evo bench", "format": FORMAT, "parts": {}}
        if self.path.exists():
            if not resume:
                raise UsageError(f"{self.path}: a record lies there. Go on with it by --resume, or name another --out.")
            self.data = read_record(self.path)
            self.resumed = True
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder}: the folder cannot be made ({error.strerror}). Name another --out.") from error

    def note(self, **values: Any) -> None:
        """Set keys at the top."""
        with self._lock:
            self.data.update(values)
            self._save()

    def part(self, name: str) -> dict[str, Any]:
        """A part's content, as a copy."""
        with self._lock:
            found: dict[str, Any] = json.loads(json.dumps(self.data["parts"].get(name, {})))
            return found

    def content(self) -> dict[str, Any]:
        """All of it, as it is on the disk."""
        with self._lock:
            found: dict[str, Any] = json.loads(json.dumps(self.data))
            return found

    def put(self, part: str, values: Mapping[str, Any]) -> None:
        """Set keys of a part."""
        with self._lock:
            self.data["parts"].setdefault(part, {}).update(values)
            self._save()

    def put_row(self, part: str, key: str, row: Mapping[str, Any]) -> None:
        """Set one row of a part's `rows`."""
        with self._lock:
            self.data["parts"].setdefault(part, {}).setdefault("rows", {})[key] = dict(row)
            self._save()

    def rows(self, part: str) -> dict[str, dict[str, Any]]:
        """A part's rows by key, without those that failed by a fault of ours: they are taken again."""
        return {key: row for key, row in self.part(part).get("rows", {}).items() if "failed" not in row}

    def _save(self) -> None:
        text = json.dumps(self.data, allow_nan=False) + "\n"
        try:
            descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{FILE}.")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(name, 0o644)
                os.replace(name, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            raise PallasEvoError(f"{self.path}: cannot be written ({error.strerror}).") from error


def read_record(path: Path) -> dict[str, Any]:
    """A record's content.

    Raises:
        UsageError: the file cannot be read, or holds no record of this format.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: there is no such file. Give a record that `pallas_evo bench` wrote.") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: expected a record of `pallas_evo bench`; it cannot be read ({error}).") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("parts"), dict):
        raise UsageError(f"{path}: expected a record of `pallas_evo bench`, format {FORMAT}; it holds something else.")
    return found
