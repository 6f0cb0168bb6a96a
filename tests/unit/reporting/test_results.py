"""docs/results.md and the README's table: made from a made-up record here, and from the newest recorded campaign."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest

from pallas_evo.errors import UsageError
from pallas_evo.reporting import results
from pallas_evo.tasks import load_tasks

ROOT = Path(__file__).resolve().parents[3]
RECORDS = sorted((ROOT / "runs").glob("*/campaign.json"))


def size(median_us: float, xla_us: float, *, binds: str = "memory", moved: int = 1 << 27, **changes):
    return {
        "median_us": median_us, "xla_us": xla_us, "wall_us": 100.0, "wall_xla_us": 120.0, "roofline_percent": 40.0,
        "floor_us": 1.0, "binds": binds, "bytes_read": moved // 2, "bytes_written": moved // 2, "ran_on": "NVIDIA H200",
        **changes,
    }  # fmt: skip


def final(ratio: float, **changes):
    sizes = {"medium": size(40.0, 40.0 * ratio), "large": size(600.0, 600.0 * ratio, moved=1 << 31)}
    return {
        "accepted": True, "failed": None, "why": None, "medium_score": ratio, "origin": "mutation", "sizes": sizes,
        "elite": {"sanitizer": {"memcheck": 0}}, **changes,
    }  # fmt: skip


def made(ratio: float = 1.2) -> dict:
    """A campaign in which every champion has the same ratio, and its seed half of it."""
    parts = {
        task.id: {
            "number": task.number,
            "seed": size(80.0, 40.0 * ratio),
            "finals": {"a" * 64: final(ratio), "b" * 64: final(9.0, accepted=False, why="numerics: it is wrong")},
        }
        for task in load_tasks()
    }
    environment = {"jax": "0.11.2", "jaxlib": "0.11.2", "triton": "3.6.0", "driver": "580"}
    return {
        "what": "campaign", "format": 1, "environment": environment, "bandwidth": {"gb_s": 3500.0}, "tasks": parts,
        "pieces": [{"seconds": 1.0, "ended": "2026-12-02T01:02:03Z"}],
    }  # fmt: skip


def reached(record: dict) -> list[bool]:
    return [bar[3] for bar in results.bars(results.lines_of(record))]


def test_what_is_reached_is_said_to_be():
    record = made()
    assert reached(record) == [True] * 6
    page = results.page(record, "runs/x/campaign.json")
    assert "45 of 45" in page
    assert "Nothing: every task has what was asked of it." in page
    assert "compute-sanitizer looked at 45 of 45" in page
    assert "45 programs that led their task were refused" in page
    assert page.count("| 1.20 | 1.20 | 1.20 | 2.00 |") == 45, "by device, by wall clock, at large, to its seed"


def test_what_is_not_reached_is_said_with_how_far_and_why():
    record = made()
    low = {
        "medium": size(40.0, 20.0, binds="compute", roofline_percent=12.0),
        "large": size(600.0, 300.0, binds="compute", moved=1 << 31),
    }
    record["tasks"]["L1/matmul"]["finals"]["a" * 64] |= {"sizes": low, "medium_score": 0.5}
    slow = {"medium": size(80.0, 96.0), "large": size(900.0, 1080.0, moved=1 << 31)}
    record["tasks"]["L1/relu"]["finals"]["a" * 64] |= {"sizes": slow}
    record["tasks"]["L1/exp"]["finals"] = {}
    del record["tasks"]["L1/log"]["finals"]["a" * 64]["sizes"]["large"]
    page = results.page(record, "runs/x/campaign.json")
    missing = page.partition("## What was not reached")[2]
    assert "| L1/matmul | 0.50x of 0.70x | the compiler" in missing
    assert "the compiler: 12 % of the tensor peak" in missing
    assert re.search(r"\| L1/relu \| 48 % of the copy bandwidth at medium, of 85 %", missing)
    assert "| L1/exp | no champion has passed its final verdict |" in missing
    assert "| L1/log | not judged at large |" in missing
    assert reached(record) == [True, True, False, False, False, False], "an unmeasured task reaches no mean"


def test_the_champion_is_the_accepted_program_with_the_best_ratio():
    record = made()
    record["tasks"]["L1/relu"]["finals"]["c" * 64] = final(1.3, origin="hand")
    line = next(line for line in results.lines_of(record) if line.task == "L1/relu")
    assert line.origin == "hand"
    assert line.ratio == pytest.approx(1.3)
    assert line.gain == pytest.approx(1.3 / 0.6)
    assert line.refused == 1


@pytest.mark.parametrize(("even", "expected"), [(36, True), (35, False)])
def test_the_count_at_the_bar_is_the_bar(even, expected):
    record = made()
    for part in list(record["tasks"].values())[even:]:
        part["finals"] = {"a" * 64: final(0.94)}
    assert reached(record)[0] is expected


def test_a_campaign_that_has_only_begun_makes_a_page_too():
    record = made()
    for part in record["tasks"].values():
        part["finals"] = {}
        del part["seed"]
    record["bandwidth"] = None
    record["pieces"] = []
    page = results.page(record, "runs/x/campaign.json")
    assert "0 of 45" in page
    assert "not measured over 0 of 45" in page
    assert "nan" not in page


def test_the_readmes_part_is_put_where_it_belongs():
    part = results.readme(made(), "runs/x/campaign.json")
    for text in ("# A\n\ntext\n", "# A\n\n## More\n\nlinks\n", "# A\n\n## Results\n\nold\n\n## More\n\nlinks\n"):
        once = results.put_into(text, part)
        assert results.put_into(once, part) == once
        assert once.count("## Results") == 1
        assert "old" not in once
        assert once.count("## More") == text.count("## More")
        if "## More" in text:
            assert once.endswith(f"{part}\n\n## More\n\nlinks\n")


def test_the_command_says_what_is_wrong_with_a_file(tmp_path, capsys):
    (tmp_path / "campaign.json").write_text(json.dumps({"what": "bench"}))
    assert results.main([str(tmp_path / "campaign.json")]) == 2
    assert "format 1" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no such file"):
        results.read_campaign(tmp_path / "none.json")
    (tmp_path / "campaign.json").write_text(json.dumps(made()))
    assert results.main([str(tmp_path / "campaign.json")]) == 0
    assert capsys.readouterr().out.startswith("# Results")


def test_it_writes_into_a_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    Path("campaign.json").write_text(json.dumps(copy.deepcopy(made())))
    assert results.main(["campaign.json", "--write"]) == 2
    Path("README.md").write_text("# pallas_evo\n")
    assert results.main(["campaign.json", "--write"]) == 0
    assert "## Results" in Path("README.md").read_text()
    assert Path("docs/results.md").read_text() == results.page(made(), "campaign.json")


def test_without_a_record_the_docs_say_so():
    if RECORDS:
        pytest.skip("a campaign is recorded")
    assert (ROOT / "docs" / "results.md").read_text() == results.NOTHING


@pytest.mark.skipif(not RECORDS, reason="no campaign is recorded yet")
def test_the_docs_are_made_from_the_newest_record():
    file = RECORDS[-1]
    name = file.relative_to(ROOT).as_posix()
    record = results.read_campaign(file)
    how = f"python -m pallas_evo.reporting.results {name} --write"
    assert (ROOT / "docs" / "results.md").read_text() == results.page(record, name), how
    assert results.readme(record, name) in (ROOT / "README.md").read_text(), how
