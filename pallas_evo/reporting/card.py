"""The cards of exported datasets: front matter as the Hugging Face hub reads it, counts, how each figure is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pallas_evo.reporting.dataset_columns import COLUMNS
from pallas_evo.reporting.dataset_rows import Program
from pallas_evo.reporting.text import one_line

MARK = "pallas-evo-export"
"""A tag in every card: by it a folder is known for an earlier export, which a new one may replace."""

APACHE = "Apache-2.0"


@dataclass
class Tally:
    """What has been written so far."""

    programs: int = 0
    rows: Counter[int] = field(default_factory=Counter)  # by level
    correct: Counter[int] = field(default_factory=Counter)
    timed: Counter[int] = field(default_factory=Counter)
    tasks: set[str] = field(default_factory=set)
    said: Mapping[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in ("Target_Hardware", "Timer", "JAX_Version", "Origin")}
    )
    licences: Counter[str | None] = field(default_factory=Counter)

    def add(self, program: Program) -> None:
        """Count a program and its rows."""
        self.programs += 1
        self.tasks.add(program.task.id)
        self.licences[program.rows[0]["License"]] += 1
        for row in program.rows:
            level = program.task.level
            self.rows[level] += 1
            self.correct[level] += row.get("Correct") is True
            self.timed[level] += row.get("Pallas_Runtime") is not None
            for name, counter in self.said.items():
                if row.get(name) is not None:
                    counter[row[name]] += 1


def size_category(rows: int) -> str:
    """The hub's word for how many rows there are."""
    steps = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
    return next((name for limit, name in steps if rows < limit), "1M<n<10M")


def front_matter(tally: Tally, configs: str) -> str:
    """The YAML block at the top of a card. The licence is Apache-2.0 only where every program says so."""
    free = set(tally.licences) <= {APACHE}
    licence = "license: apache-2.0" if free else "license: other\nlicense_name: by-program\nlicense_link: README.md"
    return (
        f"---\n{licence}\npretty_name: Pallas GPU kernels judged by pallas_evo\nlanguage:\n- code\ntags:\n- jax\n"
        f"- pallas\n- triton\n- gpu-kernels\n- {MARK}\nsize_categories:\n- {size_category(tally.rows.total())}\n"
        f"{configs}---\n"
    )


def _counts(tally: Tally) -> str:
    lines = ["| level | rows | correct | timed |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {level} | {tally.rows[level]} | {tally.correct[level]} | {tally.timed[level]} |" for level in (1, 2, 3)
    ]
    for name, counter in tally.said.items():
        some = ", ".join(f"{_code(value)} ({count})" for value, count in counter.most_common(8))
        more = f", and {len(counter) - 8} more" if len(counter) > 8 else ""
        lines.append(("\n" if name == "Target_Hardware" else "") + f"- {name}: {some or 'none'}{more}")
    named = ", ".join(
        f"{_code(licence) if licence else 'none named'} ({count})" for licence, count in tally.licences.most_common(8)
    )
    lines.append(f"- Licences that the files name: {named or 'none'}")
    return "\n".join(lines)


def _code(value: Any) -> str:
    """A stranger's word in a card: one line, nothing that Markdown or HTML would take for its own."""
    kept = one_line(value, 60)
    return "`" + "".join(letter if letter.isalnum() or letter in " .,:@+_/()-" else "?" for letter in kept) + "`"


_LICENCE = """
## Licence

The seeds, the TPU-sized originals and the references are Apache-2.0. What evolution makes of a seed keeps the seed's
SPDX line; the column `License` says what each file says of itself, and null where it says nothing. `Origin` says who
wrote it. The 45 tasks are those of PallasBench (Apache-2.0).
"""


def dataset_card(tally: Tally, *, version: str, day: str) -> str:
    """The card of `--format archive`. Its splits are the levels that have rows: `datasets` loads no other."""
    levels = [level for level in (1, 2, 3) if tally.rows[level]]
    configs = "configs:\n- config_name: default\n  data_files:\n" + "".join(
        f"  - split: level_{level}\n    path: level_{level}.parquet\n" for level in levels
    )
    table = "\n".join(
        f"| `{column.name}` | {column.unit} | {column.how.replace('|', chr(92) + '|')} |" for column in COLUMNS
    )
    return f"""{front_matter(tally, configs)}
# Pallas GPU kernels judged by pallas_evo

{tally.programs} JAX Pallas programs for {len(tally.tasks)} operators: seeds, what evolution made of them, and the
TPU-sized originals that the seeds came from, each with the verdict of an evaluator that never runs a candidate's Python
where the clock is. Exported by pallas_evo {version} on {day}.

{_counts(tally)}

```python
from datasets import load_dataset

levels = {{f"level_{{level}}": f"level_{{level}}.parquet" for level in {levels}}}
kernels = load_dataset("parquet", data_files=levels)
```

`kernels.jsonl` holds the same rows, one JSON object a line. A level without rows has a file without rows, which
`datasets` cannot load as a split of its own.

## Rows

One row for each program and each verdict of it that stands: the newest of each device, timer and choice of timed sizes.
A device that found the program wrong last has that verdict only. A correct verdict without times is left out where the
program was timed or refused on some device. A program that nobody judged has one row, with `Correct` null. A row's key
is `Program_ID`, `Target_Hardware`, `Timer` and the sizes in `Samples` together.

Times of different devices or timers are not comparable. **Null means that it was not measured**; no time is ever 0.
Every program here is a candidate's: treat its code and `Jaxpr` as a stranger's. Half of a surrogate pair in a text is
written as its escape (`\\udc80`); `Program_ID` is of the file as it was.

## Columns

| column | unit | how it is made |
| --- | --- | --- |
{table}
{_LICENCE}"""


def kernelbook_card(tally: Tally, pairs: int, *, version: str, day: str) -> str:
    """The card of `--format kernelbook`."""
    configs = "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: kernelbook.jsonl\n"
    return f"""{front_matter(tally, configs)}
# Pallas GPU kernels before and after a change

{tally.programs} JAX Pallas programs for {len(tally.tasks)} operators, {pairs} of them with what they were made from,
one JSON object a line: source before and after, and what the judge says. Exported by pallas_evo {version} on {day}.

{_counts(tally)}

Each line has `task`, `program_id`, `parent_id`, `origin`, `license`; `source_before` (of the parent; of a seed, its
TPU-sized original; null where no parent is known), `source_after`, `diff` (unified); `jaxpr` (the tracer's word, which
the candidate may have made up), `stablehlo`, `triton_ir`, `ptx_sm_80` of the program after the change; and `result`,
the verdict that stands: its times in ms without compile time, speedup = baseline / kernel, filters and raw samples, and
null where nothing was measured. Each figure is made as in the dataset of `--format archive`.
{_LICENCE}"""
