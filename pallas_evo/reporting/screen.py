"""What every list on a terminal is made of. Text of candidates is cleaned here, whatever its maker did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pallas_evo.reporting.text import NOTHING, clean, number, one_line
from pallas_evo.reporting.views import UNTIMED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ID_DIGITS = 10
"""How many digits of a program's id a list shows; `--program` takes any prefix that is one program's."""


class Grid:
    """A table. Columns are named `<left` or `right`; a screen that is too narrow for all gets none of `<?left` or
    `?right`, as far as that takes, the last first."""

    def __init__(self, screen: Console, *columns: str) -> None:
        self._width = screen.width
        self._columns = columns
        self._rows: list[list[str]] = []

    def add(self, *cells: str) -> None:
        """One row. Every cell is cleaned here, whatever its maker did."""
        self._rows.append([clean(cell) for cell in cells])

    def table(self) -> Table:
        """What can be printed."""
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        names = [column.lstrip("<?") for column in self._columns]
        widths = [max(map(cell_len, column)) + 2 for column in zip(names, *self._rows, strict=True)]
        shown = list(range(len(names)))
        for place in reversed(range(len(names))):
            if sum(widths[one] for one in shown) > self._width and "?" in self._columns[place][:2]:
                shown.remove(place)
        table = Table(box=None, padding=(0, 1), header_style="bold")
        for place in shown:
            left = self._columns[place].startswith("<")
            table.add_column(names[place], justify="left" if left else "right", no_wrap=True)
        for row in self._rows:
            table.add_row(*(Text(row[place]) for place in shown))
        return table


def device_of(device: str | None, timer: str | None) -> str:
    """The device in few characters, with the remark that nothing was timed on it."""
    said = one_line(device or NOTHING, 28)
    return f"{said}, {UNTIMED}" if timer == UNTIMED else said


def score_of(score: float | None, timer: str | None) -> str:
    """An untimed score says correct, and is no speed."""
    return UNTIMED if timer == UNTIMED and score is not None else number(score)


def head(screen: Console, text: str) -> None:
    """A headline, a free line before it."""
    from rich.text import Text

    screen.print()
    screen.print(Text(one_line(text, 400), style="bold"), soft_wrap=True)


def say(screen: Console, text: str) -> None:
    """Lines of text, none of which is broken."""
    from rich.text import Text

    screen.print(Text(clean(text)), soft_wrap=True)
