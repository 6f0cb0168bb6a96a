"""The page: its numbers are the report's, and no text of a stranger is anything but text in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
from hostile_texts import MARK, TEXTS
from page_samples import FACTS, everything, evolved, run_view, view, with_text

from pallas_evo.reporting import html
from pallas_evo.reporting.html import MOST_CODE, WIDEST_LINE, render
from pallas_evo.reporting.plots import write_plots
from pallas_evo.reporting.report import Report, read_report
from pallas_evo.reporting.safe import brief
from pallas_evo.reporting.views import Family, ProgramRow, Step, TaskDetail

VOID = {"meta", "br", "input", "img", "link", "base", "hr"}


class Page(HTMLParser):
    """The page's elements (name, attributes) in order, and the text in each kind."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "an element was not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def named(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [
            found
            for name, found in self.elements
            if name == tag and all(found.get(key.replace("_", "-")) == value for key, value in attributes.items())
        ]


@cache
def usual() -> tuple[Report, str]:
    report = read_report(everything(), FACTS)
    return report, render(report)


def data_of(page: Page) -> dict:
    (content,) = [text for text in page.texts["script"] if text.startswith("{")]
    return json.loads(content)


# ---- what it says ------------------------------------------------------------------------------------------------


def test_its_numbers_are_the_reports():
    report, text = usual()
    page = Page(text)
    for name in ("programs", "evaluations", "accepted"):
        (found,) = page.named("span", id=name)
        assert found["data-v"] == str(getattr(report, name))
    cells = [found for name, found in page.elements if name == "td" and "data-p" in found]
    expected = [value for share in report.shares for value in (*share.fast.values(), share.geometric_mean)]
    assert [found["data-v"] for found in cells] == ["" if value is None else str(value) for value in expected]
    data = data_of(page)
    assert [share["fast"] for share in data["shares"]] == [
        {f"{p:g}": count for p, count in share.fast.items()} for share in report.shares
    ]


def test_what_was_not_timed_has_no_speed():
    page = Page(render(read_report([evolved("L1/relu", device="cpu", timer="untimed", generations=4)], FACTS)))
    cells = {found["data-p"]: found["data-v"] for name, found in page.elements if name == "td" and "data-p" in found}
    assert cells == {"0": "1", "1": "", "1.5": "", "2": "", "mean": ""}
    assert page.texts["td"].count("not timed") + page.texts["span"].count("not timed") >= 4
    assert not page.named("dd", data_key="score")
    assert not [found for name, found in page.elements if name == "table" and "speeds" in str(found.get("class"))]


def test_every_task_has_a_section_that_links_lead_to():
    report, text = usual()
    page = Page(text)
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(set(ids)) == len(ids)
    links = {str(found["href"]) for name, found in page.elements if name == "a"}
    assert links
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    sections = [found["data-task"] for found in page.named("section", **{"class": "task"})]
    assert sections == list(dict.fromkeys(page.view.task for page in report.pages))


def test_a_lineage_opens_to_source_and_diff():
    made = evolved("L1/relu")
    text = render(read_report([made], FACTS))
    page = Page(text)
    family = made.families[id(made.views[0])]
    sources = page.named("code", **{"class": "python"})
    assert len(sources) == len(family.nodes)
    shown = "".join(page.texts["code"])
    for id_ in family.nodes:
        assert family.code[id_].strip() in shown


def test_a_text_stands_once_though_a_program_is_in_many_families():
    made = evolved("L1/relu")
    twice = evolved("L1/relu")
    text = render(read_report([made, twice], FACTS))
    assert text.count('<code class="python">') == len(made.families[id(made.views[0])].nodes)
    assert "source and diff above" in text


def test_identities_are_never_put_together():
    """One task under four identities: four rows, and none says more of another's."""
    made = [
        view("L1/relu", 1.2),
        view("L1/relu", 2.5, device="NVIDIA A100-SXM4-80GB"),
        view("L1/relu", 3.0, sizes=("large",)),
        view("L1/relu", 4.0, timer="wall"),
    ]
    report = read_report([_reader(made)], FACTS)
    page = Page(render(report))
    means = [found["data-v"] for found in page.named("td", data_p="mean")]
    assert sorted(float(mean) for mean in means if mean) == pytest.approx([1.2, 2.5, 3.0, 4.0])
    tables = [found for name, found in page.elements if name == "table" and "speeds" in str(found.get("class"))]
    assert len(tables) == 4


def _reader(views):
    from page_samples import Made

    return Made(name="made.sqlite", views=views, run_views=[run_view(one, f"run {n}") for n, one in enumerate(views)])


# ---- what it is made of ------------------------------------------------------------------------------------------


def test_its_policy_names_its_one_script_and_its_one_style():
    page = Page(usual()[1])
    (policy,) = page.named("meta", http_equiv="Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy["content"]).split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in str(policy["content"])
    assert set(rules) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}
    (script,) = [text for text in page.texts["script"] if not text.startswith("{")]
    (style,) = page.texts["style"]
    for rule, text in (("script-src", script), ("style-src", style)):
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_nothing_in_it_asks_for_anything():
    page = Page(usual()[1])
    for name, attributes in page.elements:
        assert name not in {
            "img",
            "link",
            "iframe",
            "object",
            "embed",
            "audio",
            "video",
            "base",
            "form",
            "image",
            "use",
        }
        assert not {"src", "srcset", "action", "data", "poster", "background", "ping"} & set(attributes), name
        assert not any(key.startswith("on") or key == "style" or ("href" in key and name != "a") for key in attributes)
    style = "".join(page.texts["style"])
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_its_colours_can_be_told_from_the_paper(scheme):
    """4.5 to 1, as WCAG 2 asks of text."""
    style = "".join(Page(usual()[1]).texts["style"])
    blocks = re.findall(r":root \{([^}]*)\}", style)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]+)", blocks[["light", "dark"].index(scheme)]))
    for paper in ("paper", "panel"):
        for name in ("ink", "soft", "accent", "seed", "bad", "note", "word", "text", "digit"):
            assert _contrast(colours[name], colours[paper]) >= 4.5, (name, paper)
    for paper in ("add", "del"):
        assert _contrast(colours["ink"], colours[paper]) >= 4.5


def _contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_every_chart_has_a_title_and_every_wide_table_can_be_scrolled_by_keys():
    page = Page(usual()[1])
    for chart in page.named("svg"):
        assert chart.get("aria-hidden") == "true" or (chart["role"] == "img" and chart["aria-label"])
    regions = [found for name, found in page.elements if name == "div" and found.get("class") == "scroll"]
    assert regions
    assert all(found["tabindex"] == "0" and found["aria-label"] for found in regions)


# ---- strangers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_a_strangers_text_is_text_and_nothing_else(name):
    usual_made = evolved("L1/relu", generations=8)
    hostile = with_text(usual_made, TEXTS[name])
    facts = replace(FACTS, tasks=(*FACTS.tasks, TEXTS[name]))
    text = render(read_report([hostile], facts, problems=[TEXTS[name]]))
    page = Page(text)
    calm = Page(render(read_report([with_text(usual_made, "calm")], replace(FACTS, tasks=(*FACTS.tasks, "calm")))))
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in calm.elements} | {"p"}
    known = {(tag, key) for tag, found in calm.elements for key in found}
    assert {(tag, key) for tag, found in page.elements for key in found} <= known | {("p", "class")}
    assert len(page.named("script")) == 2
    assert len(text) < 2_500_000
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", text
    )
    text.encode("utf-8")
    assert data_of(page)["rejected"] == {brief(TEXTS[name], 200): 3}


def test_data_cannot_end_its_element():
    made = with_text(evolved("L1/relu", generations=3), TEXTS["end of script"])
    text = render(read_report([made], FACTS))
    start = text.index('id="data">') + len('id="data">')
    data = text[start : text.index("</script>", start)]
    assert not set("<>&") & set(data)
    assert TEXTS["end of script"] in json.loads(data)["rejected"]


def test_numbers_of_a_stranger_may_be_anything():
    made = evolved("L1/relu", generations=4)
    old = made.views[0]
    for value in (float("nan"), float("inf"), 10**400, "12", [1], {"a": 1}, True):
        verdict = {"passed": value, "value": value, "threshold": value, "message": value}
        rows = tuple(
            replace(
                row,
                filters={"f": verdict},
                registers=value,
                shared_bytes=value,
                generation=value,
                roofline_percent=value,
            )
            for row in old.best
        )
        new = replace(old, best=rows, version=1)
        text = render(read_report([_reader([new])], FACTS))
        assert "L1/relu" in text


EXTREMES = (0, 0.0, -1, -5.0, 5e-324, 1e-300, 1e308, -1e308, 10**18, -(10**18), 1, None)


@pytest.mark.parametrize("value", EXTREMES, ids=str)
def test_scores_times_and_generations_may_be_extreme(value, tmp_path):
    """A run's database is a stranger's: each number of a program at its worst, beside honest ones."""
    made = evolved("L1/matmul", generations=4)
    old = made.views[0]
    fields = ("score", "time_us", "xla_us", "floor_us", "roofline_percent", "generation", "island")
    for field in fields:
        if value is None and field == "score":
            continue  # what is ranked has a score
        rows = (replace(old.best[0], **{field: value}), *old.best[1:])
        new = replace(old, best=rows, seed=replace(old.seed, **{field: value}))
        reader = _reader([new, view("L1/relu", 1.1)])
        steps = [Step(run="r", step=n, evaluations=1, correct=1, best=best) for n, best in enumerate((0.5, value, 0.9))]
        if isinstance(value, int):
            steps.append(Step(run="r", step=value, evaluations=value, correct=value, best=2.0))
        reader.details[id(new)] = TaskDetail(view=new, generations=tuple(steps), islands=tuple(steps))
        reader.families[id(new)] = replace(made.families[id(old)], nodes={row.id: row for row in rows})
        report = read_report([reader], FACTS)
        text = render(report)
        Page(text)
        assert not re.search(r'(?:x|y|x1|x2|y1|y2|cx|cy)="-?(?:nan|inf)', text)
        if field == "score":
            write_plots(report, tmp_path)


def test_long_code_is_cut_and_says_so():
    made = evolved("L1/relu", generations=2)
    family = made.families[id(made.views[0])]
    wide, long = "x" * (WIDEST_LINE + 10), "y = 1\n" * MOST_CODE
    ids = list(family.code)
    made.families[id(made.views[0])] = replace(family, code=family.code | {ids[0]: wide, ids[1]: long})
    text = render(read_report([made], FACTS))
    assert " … 10 characters more" in text
    assert f"… {len(long) - MOST_CODE:,} characters more" in text


def test_a_page_has_a_budget_and_the_best_come_first(monkeypatch):
    made = [evolved(task) for task in ("L1/relu", "L1/exp")]
    sizes = [len(m.families[id(m.views[0])].code[m.views[0].best[0].id]) for m in made]
    monkeypatch.setattr(html, "MOST_TEXT", 2 * max(sizes) + 4_000)
    page = Page(render(read_report(made, FACTS)))
    text = "".join(page.texts["code"])
    for one in made:
        assert one.families[id(one.views[0])].code[one.views[0].best[0].id].strip() in text
    assert any("is left out" in said for said in page.texts["div"])


def test_a_budget_counts_what_a_text_takes_in_the_page(monkeypatch):
    """Hidden characters are written out and brackets escaped: up to eight characters for one."""
    monkeypatch.setattr(html, "MOST_TEXT", 400_000)
    made = evolved("L1/relu")
    family = made.families[id(made.views[0])]
    texts = {key: f"# {number}\n" + "\x00<" * 19_000 for number, key in enumerate(family.code)}
    made.families[id(made.views[0])] = replace(family, code=texts)
    assert len(render(read_report([made], FACTS))) < 600_000


def test_a_family_that_goes_round_in_a_circle_ends():
    row = ProgramRow(task="L1/relu", id="a", parent="b", correct=True, score=1.0)
    family = Family(
        nodes={"a": row, "b": replace(row, id="b", parent="a"), "c": replace(row, id="c", parent="c")},
        code=dict.fromkeys("abc", "x = 1"),
        diffs=dict.fromkeys("abc"),
        skipped={},
    )
    assert sorted(id for id, *_ in html._tree(family)) == ["a", "b", "c"]


def test_a_tree_goes_deeper_only_where_it_branches():
    row = ProgramRow(task="L1/relu", id="seed")
    parents = {"seed": None, "a": "seed", "b": "a", "c": "a", "d": "c"}
    nodes = {id: replace(row, id=id, parent=parent) for id, parent in parents.items()}
    family = Family(nodes=nodes, code={}, diffs={}, skipped={})
    assert list(html._tree(family)) == [
        ("seed", 0, False), ("a", 0, False), ("b", 1, True), ("c", 1, True), ("d", 1, False),
    ]  # fmt: skip


def test_an_empty_report_is_a_page_too():
    page = Page(render(read_report([], FACTS)))
    assert "No program here was judged yet" in "".join(page.texts["p"])
    assert MARK not in "".join(page.texts["p"])
