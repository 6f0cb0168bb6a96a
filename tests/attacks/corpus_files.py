"""Reading the corpus: one candidate a file, with a header that says what it does and what must come of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Entry:
    """One file. `reasons` is empty for an honest candidate."""

    name: str
    source: str
    says: str
    task: str
    reasons: tuple[str, ...]
    classes: tuple[str, ...]


def attacks() -> list[Entry]:
    """All attacks, by name; what is no Python, so that tools would trip over it, ends in .txt."""
    return [_read(file) for file in sorted((HERE / "corpus").iterdir()) if file.suffix in (".py", ".txt")]


def honest() -> list[Entry]:
    """All honest variants, by name."""
    return [_read(file) for file in sorted((HERE / "honest").glob("*.py"))]


def attack(name: str) -> Entry:
    """One attack."""
    return _read(HERE / "corpus" / f"{name}.py")


def _read(file: Path) -> Entry:
    source = file.read_text()
    header = dict(re.findall(r"^# (attack|honest|task|reason|class): (.+)$", source, re.MULTILINE))

    def several(key: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in header.get(key, "").split(",") if part.strip())

    says = header.get("attack") or header["honest"]
    return Entry(file.stem, source, says, header["task"], several("reason"), several("class"))
