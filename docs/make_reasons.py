"""Write docs/reasons.md from pallas_evo.reasons: `python docs/make_reasons.py`. A test holds the file equal."""

from __future__ import annotations

from pathlib import Path

from pallas_evo.reasons import GATES, REASONS


def page() -> str:
    """The page's text."""
    lines = [
        "# Reason codes",
        "",
        "Every code that a candidate can be refused with, by gate, in the order in which the gates are applied. An",
        "evaluation's `reason` is the first failure. The codes are stable. Made from `pallas_evo/reasons.py` by",
        "`docs/make_reasons.py`.",
        "",
        "| gate | code | meaning |",
        "| --- | --- | --- |",
    ]
    for gate in GATES:
        lines += [f"| {gate} | `{code}` | {said} |" for code, (of, said) in REASONS.items() if of == gate]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "reasons.md").write_text(page(), encoding="utf-8")
