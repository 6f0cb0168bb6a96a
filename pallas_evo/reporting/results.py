"""What a campaign came to: `docs/results.md` and the README's table, made from `campaign.json`.

    python -m pallas_evo.reporting.results runs/h200-2026-12-02/campaign.json [--write] [--readme]

Prints the page (or the README's part); with --write, run in a checkout, puts both in their place. No figure is typed by
hand: a test makes them again from the newest record and compares.

A task's champion is the accepted program with the best ratio at medium in its final verdict. A ratio is XLA's time over
the program's, both in one process on the same kind of inputs: above 1 the program is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pallas_evo.errors import PallasEvoError, UsageError

MATMUL_BOUND = (
    "L1/matmul", "L1/batched_matmul", "L2/matmul_relu", "L2/matmul_gelu", "L2/matmul_silu", "L2/swiglu", "L2/geglu",
    "L2/linear_bias_relu", "L3/gated_mlp",
)  # fmt: skip
EVEN, FASTER, MATMUL, MEAN, GAIN, BANDWIDTH = 0.95, 1.05, 0.7, 1.10, 1.5, 0.85
EVEN_OF, FASTER_OF, TASKS = 36, 20, 45
LARGE_BYTES = 128e6  # a share of the copy bandwidth means something from here on: over twice what an L2 holds
HEADING, BEFORE = "## Results", "## More"  # the README's part, and what it goes before where there is none yet
NOTHING = """# Results

No campaign is recorded yet. [How one is run](campaign.md).
"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One task: times in us at medium unless they say otherwise; None is what was not measured."""

    task: str
    seed_us: float | None
    seed_ratio: float | None
    champion_us: float | None
    xla_us: float | None
    ratio: float | None
    wall_ratio: float | None
    large_us: float | None
    large_ratio: float | None
    roofline: float | None
    share: float | None  # of the measured copy bandwidth
    share_size: str | None
    binds: str | None
    origin: str | None
    sanitized: bool | None
    refused: int

    @property
    def gain(self) -> float | None:
        """How much faster than its seed, by both ratios to XLA."""
        return self.ratio / self.seed_ratio if self.ratio and self.seed_ratio else None


def read_campaign(path: Path) -> dict[str, Any]:
    """A campaign's record.

    Raises:
        UsageError: the file cannot be read, or is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: there is no such file. Give a campaign.json of benchmarks/campaign.py.") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: expected a campaign's record; it cannot be read ({error}).") from error
    if not isinstance(found, dict) or found.get("what") != "campaign" or found.get("format") != 1:
        raise UsageError(f"{path}: expected a campaign's record of format 1; it holds something else.")
    return found


def lines_of(record: Mapping[str, Any]) -> list[Line]:
    """A line for each task that the record knows, in number order."""
    copied = (record.get("bandwidth") or {}).get("gb_s")
    parts = sorted(record["tasks"].items(), key=lambda item: item[1]["number"])
    return [_line(task, part, copied) for task, part in parts]


def _line(task: str, part: Mapping[str, Any], copied_gb_s: float | None) -> Line:
    finals = part["finals"].values()
    accepted = [final for final in finals if final["accepted"]]
    champion: Mapping[str, Any] = max(accepted, key=lambda final: final["medium_score"] or 0.0, default={})
    sizes = champion.get("sizes", {})
    medium, large, seed = sizes.get("medium", {}), sizes.get("large", {}), part.get("seed") or {}
    share, share_size = None, None
    for size, row in (("medium", medium), ("large", large)):
        moved = row.get("bytes_read", 0) + row.get("bytes_written", 0)
        wide = row.get("binds") == "memory" and moved >= LARGE_BYTES
        if share is None and wide and row.get("median_us") and copied_gb_s:
            share, share_size = moved / (row["median_us"] * 1e3) / copied_gb_s, size
    tools = (champion.get("elite") or {}).get("sanitizer")
    return Line(
        task=task,
        seed_us=seed.get("median_us"),
        seed_ratio=_ratio(seed.get("xla_us"), seed.get("median_us")),
        champion_us=medium.get("median_us"),
        xla_us=medium.get("xla_us"),
        ratio=_ratio(medium.get("xla_us"), medium.get("median_us")),
        wall_ratio=_ratio(medium.get("wall_xla_us"), medium.get("wall_us")),
        large_us=large.get("median_us"),
        large_ratio=_ratio(large.get("xla_us"), large.get("median_us")),
        roofline=medium.get("roofline_percent"),
        share=share,
        share_size=share_size,
        binds=medium.get("binds"),
        origin=champion.get("origin"),
        sanitized=None if not champion else bool(tools),
        refused=sum(not final["accepted"] and not final["failed"] for final in finals),
    )


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over and under else None


def geometric_mean(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


# ---- the figures that were asked for ---------------------------------------------------------------------------


def bars(lines: Sequence[Line]) -> list[tuple[str, str, str, bool]]:
    """(what, bar, measured, whether it is reached); a task without a champion reaches nothing."""
    ratios = [line.ratio for line in lines if line.ratio is not None]
    matmuls = {line.task: line.ratio or 0.0 for line in lines if line.task in MATMUL_BOUND}
    gains = [line.gain for line in lines if line.gain is not None]
    shares = [line.share for line in lines if line.share is not None]
    even, faster = sum(ratio >= EVEN for ratio in ratios), sum(ratio >= FASTER for ratio in ratios)
    fine = sum(ratio >= MATMUL for ratio in matmuls.values())
    wide = sum(share >= BANDWIDTH for share in shares)
    mean, gain = geometric_mean(ratios), geometric_mean(gains)
    whole = len(ratios) == TASKS
    return [
        ("at 0.95x of XLA or better", f"{EVEN_OF} of {TASKS}", f"{even} of {TASKS}", even >= EVEN_OF),
        ("at 1.05x or better", f"{FASTER_OF} of {TASKS}", f"{faster} of {TASKS}", faster >= FASTER_OF),
        (
            "matmul-bound at 0.7x or better",
            f"{len(MATMUL_BOUND)} of {len(MATMUL_BOUND)}",
            f"{fine} of {len(MATMUL_BOUND)}",
            fine == len(MATMUL_BOUND),
        ),
        ("geometric mean", f"{MEAN:.2f}x", _of(mean, len(ratios)), whole and mean is not None and mean >= MEAN),
        (
            "seeds to champions, geometric mean",
            f"{GAIN:.2f}x",
            _of(gain, len(gains)),
            len(gains) == TASKS and gain is not None and gain >= GAIN,
        ),
        (
            "memory-bound at 85 % of the measured copy bandwidth or better, where they move 128 MB",
            f"{len(shares)} of {len(shares)}",
            f"{wide} of {len(shares)}",
            wide == len(shares) > 0,
        ),
    ]  # fmt: skip


def _of(value: float | None, count: int) -> str:
    said = "not measured" if value is None else f"{value:.2f}x"
    return said if count == TASKS else f"{said} over {count} of {TASKS}"


def short_of(line: Line) -> list[str]:
    """What a task does not reach, each with how far it is."""
    if line.ratio is None:
        return ["no champion has passed its final verdict"]
    found = ["not judged at large"] if line.large_us is None else []
    bar = MATMUL if line.task in MATMUL_BOUND else EVEN
    if line.ratio < bar:
        found.append(f"{line.ratio:.2f}x of {bar:.2f}x")
    elif line.ratio < EVEN:
        found.append(f"{line.ratio:.2f}x of {EVEN:.2f}x (its own bar, {bar:.2f}x, is reached)")
    if line.share is not None and line.share < BANDWIDTH:
        found.append(
            f"{_percent(line.share, 100)} of the copy bandwidth at {line.share_size}, of {_percent(BANDWIDTH, 100)}"
        )
    return found


def what_binds(line: Line) -> str:
    """A sentence on what keeps a champion from being faster, from its time and its floor alone."""
    if line.binds == "launch":
        return "launch: starting and draining its kernels is most of its time"
    if line.share is not None and line.share >= BANDWIDTH:
        return f"memory: {_percent(line.share, 100)} of what a copy reaches"
    if line.roofline is None or line.binds is None:
        return "not known"
    if line.roofline >= 60:
        return f"{line.binds}: {line.roofline:.0f} % of the roofline"
    if line.binds == "compute":
        return f"the compiler: {line.roofline:.0f} % of the tensor peak, so that neither arithmetic nor memory is full"
    return f"latency: {line.roofline:.0f} % of the memory's roofline, so too little is under way at once"


# ---- the texts -------------------------------------------------------------------------------------------------


def page(record: Mapping[str, Any], name: str) -> str:
    """docs/results.md.

    Args:
        name: of the record, as the page shall call it.
    """
    lines = lines_of(record)
    return (
        "\n\n".join([f"# Results\n\n{_made_with(record, name)}", _bars(lines), _whole(lines), _missing(lines)]) + "\n"
    )


def readme(record: Mapping[str, Any], name: str) -> str:
    """The README's part, with its heading."""
    said = f"The campaign on {_device(record)}, {_date(record)} ([all 45](docs/results.md), [the record]({name})):"
    return "\n\n".join([HEADING, said, _bars(lines_of(record), heading="")])


def put_into(text: str, part: str) -> str:
    """A README with its part replaced; where it has none it comes before the last one, or at the end."""
    before, found, rest = text.partition(f"{HEADING}\n")
    if found:
        _, found, after = rest.partition("\n## ")
        return f"{before}{part}\n" + (f"\n## {after}" if found else "")
    before, found, after = text.partition(f"{BEFORE}\n")
    return f"{before}{part}\n\n{found}{after}" if found else f"{text.rstrip()}\n\n{part}\n"


def _made_with(record: Mapping[str, Any], name: str) -> str:
    here = record.get("environment", {})
    versions = ", ".join(
        f"{said} {here[key]}"
        for key, said in (("jax", "JAX"), ("jaxlib", "jaxlib"), ("triton", "Triton"), ("driver", "driver"))
        if here.get(key)
    )
    band = record.get("bandwidth") or {}
    copied = f" A copy reaches {band['gb_s']:,.0f} GB/s here." if band.get("gb_s") else ""
    said = (
        f"{_device(record)}, {_date(record)}; {versions}. Made from `{name}` by "
        "`python -m pallas_evo.reporting.results`; [how it was run](campaign.md)."
    )
    return said + (
        "\n\nEvery champion has passed all gates at small, medium and large (but for those that the last table names) "
        "in a fresh process with new seeds, and compiles for sm_80 without spills and within 163 KB. A ratio is jitted "
        "XLA's time over the program's, at the same precision, device time by CUPTI with a cold L2: above 1 it "
        f"is the faster. Beside each stands the ratio that a wall clock gives for the same calls.{copied}"
    )


def _bars(lines: Sequence[Line], heading: str = "## What was asked for, and what came\n\n") -> str:
    rows = [(what, bar, measured, "yes" if reached else "**no**") for what, bar, measured, reached in bars(lines)]
    return heading + _table(("at medium", "asked", "measured", "reached"), rows)


def _whole(lines: Sequence[Line]) -> str:
    heads = (
        "task", "seed us", "champion us", "XLA us", "ratio", "by wall clock", "at large", "to its seed", "roofline",
        "copy bandwidth", "binds", "champion is",
    )  # fmt: skip
    rows = [
        (
            line.task, _us(line.seed_us), _us(line.champion_us), _us(line.xla_us), _times(line.ratio),
            _times(line.wall_ratio), _times(line.large_ratio), _times(line.gain), _percent(line.roofline, 1),
            _percent(line.share, 100) + (f" ({line.share_size})" if line.share is not None else ""), line.binds or "",
            line.origin or "",
        )
        for line in lines
    ]  # fmt: skip
    looked = sum(bool(line.sanitized) for line in lines)
    said = (
        f"compute-sanitizer looked at {looked} of {sum(line.ratio is not None for line in lines)} champions, in a run "
        f"at small, and found nothing. {sum(line.refused for line in lines)} programs that led their task were refused "
        "by their final verdict, and the next best took their place. `hand` is a variant written by hand "
        "(`benchmarks/variants/`), `mutation` the offline mutator's, `mutation of hand` one of a variant's descendants."
    )
    return f"## All tasks\n\n{said}\n\n{_table(heads, rows)}"


def _missing(lines: Sequence[Line]) -> str:
    rows = [(line.task, "; ".join(short), what_binds(line)) for line in lines if (short := short_of(line))]
    said = "Every task below 0.95x, or below the copy bandwidth asked for. What binds is read off times and floors."
    if not rows:
        return "## What was not reached\n\nNothing: every task has what was asked of it."
    return f"## What was not reached\n\n{said}\n\n{_table(('task', 'how far', 'what binds it'), rows)}"


def _device(record: Mapping[str, Any]) -> str:
    rows = [part["seed"] for part in record["tasks"].values() if part.get("seed")]
    return " and ".join(sorted({row["ran_on"] for row in rows if row.get("ran_on")})) or "a GPU"


def _date(record: Mapping[str, Any]) -> str:
    days = [piece["ended"][:10] for piece in record["pieces"] if piece.get("ended")]
    return days[-1] if days else "not ended"


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None, scale: float) -> str:
    return "" if value is None else f"{scale * value:.0f} %"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print or write. Exit code 2: the file is no record."""
    parser = argparse.ArgumentParser(prog="python -m pallas_evo.reporting.results", description="A campaign's results.")
    parser.add_argument("file", type=Path, metavar="FILE", help="campaign.json, by its path from the checkout's root")
    parser.add_argument("--readme", action="store_true", help="print the README's part in place of the page")
    parser.add_argument("--write", action="store_true", help="write docs/results.md and the README's part")
    chosen = parser.parse_args(arguments)
    try:
        record = read_campaign(chosen.file)
        name = chosen.file.as_posix()
        if chosen.write:
            home = Path("README.md")
            if not home.exists():
                raise UsageError("README.md: expected a checkout's root as the working directory, and there is none.")
            Path("docs/results.md").write_text(page(record, name), encoding="utf-8")
            home.write_text(put_into(home.read_text(encoding="utf-8"), readme(record, name)), encoding="utf-8")
            return 0
    except PallasEvoError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(readme(record, name) + "\n" if chosen.readme else page(record, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
