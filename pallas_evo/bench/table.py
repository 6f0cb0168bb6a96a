"""Tables of a bench's record: `python -m pallas_evo.bench.table FILE [--part NAME]`. No figure is typed by hand."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pallas_evo.bench.record import read_record
from pallas_evo.errors import PallasEvoError

WITHIN = 0.03
Row = Mapping[str, Any]


def markdown(record: Mapping[str, Any]) -> str:
    """The whole record as one Markdown page."""
    parts = [
        f"# {title(record)}",
        made_with(record),
        summary(record),
        *(section(record) for section in SECTIONS.values()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def title(record: Mapping[str, Any]) -> str:
    """`NVIDIA H200, 2026-12-01`."""
    ran_on = {row["ran_on"] for row in _rows(record, "suite").values() if row.get("ran_on")}
    known = record.get("device") or " and ".join(sorted(ran_on)) or "a GPU"
    where = "the CPU, untimed" if record.get("target") == "cpu" else known
    return f"pallas_evo bench on {where}, {str(record.get('started', ''))[:10]}"


def made_with(record: Mapping[str, Any]) -> str:
    """Versions and machine, in a line."""
    here = record.get("environment", {})
    said = [
        f"{name} {here[key]}"
        for key, name in (
            ("pallas_evo", "pallas_evo"), ("jax", "JAX"), ("jaxlib", "jaxlib"), ("triton", "Triton"),
            ("numpy", "NumPy"), ("python", "Python"), ("driver", "driver"),
        )
        if here.get(key)
    ]  # fmt: skip
    return ", ".join([*said, f"{here.get('cores')} cores", f"timer {_timer(record)}"]) + "."


def summary(record: Mapping[str, Any]) -> str:
    """The figures that stand for the rest, a line each."""
    lines = [*_suite_lines(record), *_self_lines(record), *_throughput_lines(record), *_other_lines(record)]
    return _table(("what", "measured"), lines) if lines else "Nothing was measured yet."


def seeds_accepted(record: Mapping[str, Any]) -> tuple[int, int]:
    """(accepted, of) in the suite."""
    rows = _rows(record, "suite")
    return sum(bool(row.get("correct")) for row in rows.values()), len(rows)


def our_failures(record: Mapping[str, Any]) -> list[str]:
    """What failed by a fault of ours, a sentence each."""
    found = [
        f"{part}: {key}: {row['failed']}"
        for part in ("suite", "self")
        for key, row in _rows(record, part).items()
        if "failed" in row
    ]
    rounds = _rows(record, "throughput")
    harm = record["parts"].get("throughput", {}).get("harm")
    for name, one in [*rounds.items(), *([("harm", harm)] if harm else [])]:
        found += [
            f"throughput: {name}: {result['task']}: {result['failed']}"
            for result in one["results"]
            if "failed" in result
        ]
    return found


# ---- the summary's lines ---------------------------------------------------------------------------------------


def _suite_lines(record: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    rows = _rows(record, "suite")
    if not rows:
        return
    accepted, of = seeds_accepted(record)
    part = record["parts"]["suite"]
    took = f", {part['seconds']:.1f} s from cold, {part['judges']} at once" if part.get("seconds") is not None else ""
    yield "seeds through all gates", f"{accepted} of {of}{took}"
    timed = _timed(record)
    if timed:
        ratios = [row["xla_us"] / row["median_us"] for row in timed.values()]
        near = sum(ratio >= 0.95 for ratio in ratios)
        said = f"median {statistics.median(ratios):.2f}x; {near} of {len(ratios)} at 0.95x or better"
        yield "seeds' time against XLA", said


def _self_lines(record: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    rows = {task: row for task, row in _rows(record, "self").items() if "ratio" in row}
    ratios = {task: row["ratio"] for task, row in rows.items()}
    if ratios:
        both = sum(all(abs(order - 1) <= WITHIN for order in row["orders"]) for row in rows.values())
        farthest = max(ratios, key=lambda task: abs(ratios[task] - 1))
        yield (
            "a seed against itself",
            (
                f"{sum(abs(r - 1) <= WITHIN for r in ratios.values())} of {len(ratios)} within {WITHIN:.0%} of 1.00; "
                f"farthest {ratios[farthest]:.3f} ({farthest}); {both} in each of both orders"
            ),
        )


def _throughput_lines(record: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for at_once, one in _rounds(record):
        held = f", GPU alone {one['held_s_median']:.2f} s each" if one["held_s_median"] is not None else ""
        yield (
            f"{at_once} at once",
            (
                f"{one['per_minute']:.0f} judged a minute, latency {_seconds(one['latency_p50_s'])} (p50), "
                f"{_seconds(one['latency_p95_s'])} (p95){held}"
            ),
        )
    harm = record["parts"].get("throughput", {}).get("harm")
    if harm:
        kinds = " and ".join(f"an {one['harm']}" for one in harm["harmful"])
        yield (
            f"{kinds} among {harm['honest']}",
            (f"{harm['extra_s_each']:+.1f} s each; {len(harm['changed_verdicts'])} other verdicts changed"),
        )


def _other_lines(record: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    band = record.get("bandwidth")
    if band:
        sheet = band.get("datasheet_gb_s")
        of = f" of the datasheet's {sheet:,.0f} ({band['gb_s'] / sheet:.0%})" if sheet else ""
        yield "copy bandwidth", f"{band['gb_s']:,.0f} GB/s{of}"
    apart = [_device(row) / _wall(row) for row in _walls(record).values()]
    if apart:
        turned = sum((_device(row) > 1) != (_wall(row) > 1) for row in _walls(record).values())
        off = sum(not 1 / 1.1 <= ratio <= 1.1 for ratio in apart)
        said = f"the ratio to XLA is over 10 % off for {off} of {len(apart)}, on the wrong side of 1 for {turned}"
        yield "wall clock against device time", said


# ---- the sections ----------------------------------------------------------------------------------------------


def suite_section(record: Mapping[str, Any]) -> str:
    """All seeds: verdict, times, roofline, what binds, what the compiler made of it."""
    rows = []
    for task, row in _rows(record, "suite").items():
        verdict = "ours failed" if "failed" in row else "accepted" if row["correct"] else str(row["reason"])
        made = next(iter((row.get("compiled") or {}).values()), None)
        rows.append(
            (
                task,
                verdict,
                _us(row.get("median_us")),
                _us(row.get("xla_us")),
                f"{row['xla_us'] / row['median_us']:.2f}" if row.get("xla_us") and row.get("median_us") else "",
                f"{row['roofline_percent']:.0f} %" if row.get("roofline_percent") is not None else "",
                row.get("binds") or "",
                f"{row['held_s']:.2f}" if row.get("held_s") is not None else "",
                *(
                    (str(made["registers"]), str(made["spill_bytes"]), str(made["shared_bytes"]))
                    if made
                    else ("", "", "")
                ),
            )
        )
    heads = ("seed", "verdict", "us", "XLA us", "ratio", "roofline", "binds", "GPU s", "registers", "spills", "shared")
    sms = sorted({sm for row in _rows(record, "suite").values() for sm in (row.get("compiled") or {})})
    note = f"Registers, spilled and shared bytes: {sms[0]}. " if sms else ""
    said = f"{note}GPU s: seconds for which the GPU was this seed's alone."
    return _section("Every seed through all gates", rows, heads, said)


def self_section(record: Mapping[str, Any]) -> str:
    """Each seed against itself."""
    rows = [
        (task, _us(row["median_us"]), *(f"{value:.3f}" for value in (row["ratio"], *row["orders"])))
        for task, row in _rows(record, "self").items()
        if "ratio" in row
    ]
    said = (
        "Two separate compilations of one program. An order is the median in the candidate's slot over that in the "
        "baseline's, the ratio the geometric mean of both orders."
    )
    return _section("Every seed against itself", rows, ("seed", "us", "ratio", "first order", "second order"), said)


def throughput_section(record: Mapping[str, Any]) -> str:
    """Rounds, and what harm costs."""
    rows = [
        (
            at_once,
            str(one["judges"]),
            f"{one['judged']} ({one['distinct']} distinct)",
            str(one["accepted"]),
            f"{one['per_minute']:.0f}",
            _seconds(one["latency_p50_s"]),
            _seconds(one["latency_p95_s"]),
            f"{one['held_s_median']:.3f} s" if one["held_s_median"] is not None else "",
        )
        for at_once, one in _rounds(record)
    ]
    heads = ("at once", "judges", "judged", "accepted", "a minute", "p50", "p95", "GPU alone, median")
    text = _section(
        "Throughput and latency", rows, heads, "Every source is another, every candidate has fresh processes."
    )
    harm = record["parts"].get("throughput", {}).get("harm")
    if not harm:
        return text
    harmful = [
        (one["harm"], str(one.get("reason") or one.get("failed")), _seconds(one["latency_s"]))
        for one in harm["harmful"]
    ]
    said = (
        f"{harm['honest']} honest candidates, {harm['at_once']} at once: {harm['seconds_without']:.1f} s without and "
        f"{harm['seconds_with']:.1f} s with these, {harm['extra_s_each']:+.1f} s each; "
        f"{len(harm['changed_verdicts'])} other verdicts changed; the longest time without an honest verdict was "
        f"{harm['longest_gap_s']['without']:.1f} s and {harm['longest_gap_s']['with']:.1f} s."
    )
    return f"{text}\n\n{_section('Candidates that do harm', harmful, ('candidate', 'verdict', 'latency'), said)}"


def wall_section(record: Mapping[str, Any]) -> str:
    """Device time beside the wall clock."""
    rows = [
        (task, _us(row["median_us"]), _us(row["wall_us"]), _us(row["xla_us"]), _us(row["wall_xla_us"]),
         f"{_device(row):.2f}", f"{_wall(row):.2f}")
        for task, row in _walls(record).items()
    ]  # fmt: skip
    heads = ("seed", "device us", "wall us", "XLA device us", "XLA wall us", "ratio by device", "ratio by wall")
    return _section("Wall clock against device time", rows, heads, "The same programs, inputs and cold L2.")


SECTIONS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "suite": suite_section,
    "self": self_section,
    "throughput": throughput_section,
    "wall": wall_section,
}


# ---- reading and writing ---------------------------------------------------------------------------------------


def _rows(record: Mapping[str, Any], part: str) -> dict[str, Row]:
    """A part's rows, those of tasks in the plan's order."""
    rows: dict[str, Row] = record["parts"].get(part, {}).get("rows", {})
    order = {task: place for place, task in enumerate(record.get("tasks", ()))}
    return dict(sorted(rows.items(), key=lambda item: order.get(item[0], len(order))))


def _rounds(record: Mapping[str, Any]) -> list[tuple[str, Row]]:
    return sorted(_rows(record, "throughput").items(), key=lambda item: int(item[0]))


def _timed(record: Mapping[str, Any]) -> dict[str, Row]:
    return {task: row for task, row in _rows(record, "suite").items() if row.get("median_us") and row.get("xla_us")}


def _walls(record: Mapping[str, Any]) -> dict[str, Row]:
    return {task: row for task, row in _timed(record).items() if row.get("wall_us") and row.get("wall_xla_us")}


def _device(row: Row) -> float:
    return float(row["xla_us"] / row["median_us"])


def _wall(row: Row) -> float:
    return float(row["wall_xla_us"] / row["wall_us"])


def _timer(record: Mapping[str, Any]) -> str:
    timers = {row["timer"] for part in ("suite", "self") for row in _rows(record, part).values() if row.get("timer")}
    return " and ".join(sorted(timers)) or "none"


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _section(heading: str, rows: Sequence[Sequence[str]], heads: Sequence[str], said: str) -> str:
    return f"## {heading}\n\n{said}\n\n{_table(heads, rows)}" if rows else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a record's tables. Exit code 2: the file is no record."""
    parser = argparse.ArgumentParser(prog="python -m pallas_evo.bench.table", description="Tables of a bench's record.")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--part", choices=("summary", *SECTIONS), help="one part in place of the whole page")
    chosen = parser.parse_args(arguments)
    try:
        record = read_record(chosen.file)
    except PallasEvoError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    if chosen.part is None:
        sys.stdout.write(markdown(record))
    else:
        sys.stdout.write((summary if chosen.part == "summary" else SECTIONS[chosen.part])(record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
