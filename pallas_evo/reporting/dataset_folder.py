"""A folder that appears whole or not at all, in the place of nothing, of an empty folder or of an earlier export."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pallas_evo.errors import UsageError
from pallas_evo.reporting.card import MARK

_CARD = "README.md"
_FILES = {_CARD, "kernels.jsonl", "kernelbook.jsonl", *(f"level_{level}.parquet" for level in (1, 2, 3))}


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write in; it takes `out`'s place when the block ends, and is gone where that fails.

    Raises:
        UsageError: at `out` is something that is no earlier export, or no folder can be made there.
    """
    place = Path(os.path.realpath(out))
    check_place(place, out)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    except OSError as error:
        raise UsageError(f"{out}: expected a place for a folder ({error.strerror}). Give another --out.") from error
    try:
        new = temporary / "new"
        new.mkdir()
        yield new
        _put(new, temporary / "old", place, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_place(place: Path, out: Path) -> None:
    """Refuse what an export must not replace."""
    if not place.exists():
        return
    if not place.is_dir():
        raise UsageError(f"{out}: expected a folder to write, and a file is there. Give another --out.")
    try:
        names = {entry.name for entry in place.iterdir()}
        card = (place / _CARD).read_text(encoding="utf-8", errors="replace")[:4096] if _CARD in names else ""
    except OSError as error:
        raise UsageError(f"{out}: the folder cannot be read ({error.strerror}). Give another --out.") from error
    if names and (not names <= _FILES or f"\n- {MARK}\n" not in card):
        other = sorted(names - _FILES) or sorted(names)
        raise UsageError(
            f"{out}: expected a new folder, an empty one or an earlier export, and it holds {other[0]}. "
            "Give another --out."
        )


def _put(new: Path, old: Path, place: Path, out: Path) -> None:
    """The new folder in the place of what was there; that comes back where it fails."""
    check_place(place, out)  # the export took a while
    moved = place.exists()
    if moved:
        place.rename(old)
    try:
        new.rename(place)
    except OSError:
        if moved:
            old.rename(place)
        raise
