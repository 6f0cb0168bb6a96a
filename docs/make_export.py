"""Writes the table of columns in docs/export.md from the one that the files' schema and card are made from."""

from __future__ import annotations

from pathlib import Path

from pallas_evo.reporting.dataset_columns import COLUMNS

PAGE = Path(__file__).parent / "export.md"
HEAD = "| column | unit | how it is made |\n| --- | --- | --- |\n"


def table() -> str:
    """The table's rows."""
    return "".join(f"| `{one.name}` | {one.unit} | {one.how.replace('|', chr(92) + '|')} |\n" for one in COLUMNS)


def page(text: str) -> str:
    """The page with its table made anew."""
    before, head, after = text.partition(HEAD)
    return before + head + table() + "\n" + after.partition("\n\n")[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
