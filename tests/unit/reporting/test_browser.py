"""The page in a real browser. `make test` leaves it out (marker `browser`): `.ci/run` has Chromium."""

from __future__ import annotations

import hashlib
import math
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import BINARY, Tab, browser
from hostile_texts import MARK, TEXTS
from page_samples import FACTS, everything, evolved, with_text

from pallas_evo import open_archive
from pallas_evo.cli.sources import opened
from pallas_evo.reporting.report import read_report, write_html
from pallas_evo.tasks import dims_of, get_task, workload
from pallas_evo.types import Evaluation, FilterResult, SizeResult

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BINARY is None, reason="no Chromium here: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]
PHONE = 390


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    folder = tmp_path_factory.mktemp("browser")
    with browser(folder) as tab:
        yield tab
    shutil.rmtree(folder / "profile", ignore_errors=True)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "usual.html"
    write_html(read_report(everything(), FACTS), path)
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All hostile texts in one page, each in every field."""
    path = tmp_path_factory.mktemp("page") / "hostile.html"
    made = [with_text(evolved("L1/relu", generations=6), text) for text in TEXTS.values()]
    facts = replace(FACTS, tasks=(*FACTS.tasks, *TEXTS.values()))
    write_html(read_report(made, facts, problems=list(TEXTS.values())), path)
    return path


def open_all(tab: Tab) -> None:
    tab.run("for (const part of document.querySelectorAll('details')) part.open = true; 1")


SCORES = {
    "L1/relu": [0.9, 1.2, 1.6],
    "L1/exp": [2.1, 0.4],
    "L1/matmul": [0.5],
    "L2/swiglu": [1.0],
    "L3/gated_mlp": [1.5],
}


def make_archive(path: Path) -> None:
    """Programs that were timed on one GPU, one that a CPU judged, and refusals."""
    with open_archive(path) as archive, archive.batch():
        archive.add_tasks([get_task(task) for task in SCORES])
        run = archive.add_run("evolve", name="made")
        for task, scores in SCORES.items():
            for number, score in enumerate([*scores, None, 0.0]):
                source = f"# {task} {number}\n"
                program = archive.add_program(
                    task, source, origin="seed" if not number else "mutation", run_id=run.id, generation=number
                )
                archive.add_evaluation(program, _evaluation(task, score, source), run_id=run.id)


def _evaluation(task: str, score: float | None, source: str) -> Evaluation:
    """A speed; 0 for a refusal, None for what was not timed."""
    shape = tuple(array.shape for array in workload(get_task(task), dims_of(get_task(task), "medium"), "medium").inputs)
    timed = {"median_us": 30 / score, "xla_us": 30.0, "floor_us": 6.0, "roofline_percent": 20 * score} if score else {}
    verdict = FilterResult(passed=True, value=0.001, threshold=0.02, message="")
    return Evaluation(
        task=task,
        task_version=get_task(task).version,
        target="cuda" if score else "cpu",
        correct=score != 0,
        combined_score=1.0 if score is None else score,
        status="rejected" if score == 0 else "accepted",
        stage="numerics" if score == 0 else None,
        reason="numerics" if score == 0 else None,
        message="",
        gates=(),
        filters={"output_range": verdict},
        sizes={"medium": SizeResult(shape=shape, correct=score != 0, **timed)},
        compiled={},
        ran_on="NVIDIA H200" if score else "cpu",
        compiled_for=(),
        jail=None,
        seeds={},
        candidate_sha256=hashlib.sha256(source.encode()).hexdigest(),
        duration_s=0.1,
        timer="cupti" if score else "untimed",
    )


def test_the_pages_numbers_are_the_archives(tab, tmp_path):
    """Asked of the database in its own language, not through our reader."""
    make_archive(tmp_path / "archive.sqlite")
    with opened(str(tmp_path / "archive.sqlite")) as found:
        write_html(read_report(found.readers, FACTS), tmp_path / "page.html")
    tab.resize(1280)
    tab.open(tmp_path / "page.html")
    with sqlite3.connect(tmp_path / "archive.sqlite") as connection:
        best = dict(
            connection.execute(
                "SELECT task_id, max(combined_score) FROM evaluations WHERE correct AND timer = 'cupti' GROUP BY 1"
            )
        )
        counts = {
            "programs": "SELECT count(*) FROM programs",
            "evaluations": "SELECT count(*) FROM evaluations",
            "accepted": "SELECT count(*) FROM evaluations WHERE status = 'accepted'",
            "runs": "SELECT count(*) FROM runs",
        }
        for name, question in counts.items():
            assert (
                tab.run(f"+document.getElementById('{name}').dataset.v") == connection.execute(question).fetchone()[0]
            )
        reasons = connection.execute(
            "SELECT reason, count(*) FROM evaluations WHERE reason IS NOT NULL GROUP BY reason"
        ).fetchall()
    assert tab.run(
        "[...document.querySelectorAll('#rejections tbody tr')].map(row => [row.dataset.reason, +row.dataset.v])"
    ) == [list(row) for row in reasons]
    row = "document.querySelector('#shares tr[data-device=\"NVIDIA H200\"]')"
    for p in (0, 1, 1.5, 2):
        expected = sum(score > p for score in best.values())
        assert tab.run(f"{row}.querySelector('[data-p=\"{p:g}\"]').dataset.v") == str(expected)
        assert tab.run(f"{row}.querySelector('[data-p=\"{p:g}\"] .sub').textContent") == f"{expected} of 45"
    mean = math.exp(sum(map(math.log, best.values())) / len(best))
    assert float(tab.run(f"{row}.querySelector('[data-p=mean]').dataset.v")) == pytest.approx(mean)
    assert tab.run("document.querySelector('#shares tr[data-timer=untimed] [data-p=\"1\"]').innerText") == "not timed"
    row = "row => [row.dataset.task, +row.cells[2].dataset.v, row.cells[2].innerText]"
    shown = tab.run(f"[...document.querySelectorAll('table.speeds tbody tr')].map({row})")
    assert {task: score for task, score, _ in shown} == pytest.approx(best)
    assert all(text == f"{score:.2f}" for _, score, text in shown)
    time = "at => [at.closest('.part').dataset.task, at.textContent]"
    times = dict(tab.run(f"[...document.querySelectorAll('.part dd[data-key=time]')].map({time})"))
    assert {task: float(text.removesuffix(" us")) for task, text in times.items()} == pytest.approx(
        {task: 30 / score for task, score in best.items()}, rel=0.01
    )
    assert tab.complaints() == []


def test_it_says_nothing_to_the_console_and_asks_for_nothing(tab, usual):
    tab.resize(1280)
    tab.open(usual)
    open_all(tab)
    tab.run("for (const button of document.querySelectorAll('button')) button.click(); 1")
    assert tab.complaints() == []
    assert tab.requests() == [usual.as_uri()]
    assert tab.run("document.querySelectorAll('code.python.tinted').length") > 100  # the script works


@pytest.mark.parametrize("width", [320, PHONE, 768, 1280])
@pytest.mark.parametrize("page", ["usual", "hostile"])
def test_it_is_never_wider_than_the_window(tab, page, width, request):
    tab.resize(width)
    tab.open(request.getfixturevalue(page))
    open_all(tab)
    assert tab.run("document.documentElement.scrollWidth") <= width
    inside = "!at.closest('svg') && !at.parentElement.closest('.scroll, pre')"
    wider = f"at.getBoundingClientRect().right > {width} + 0.5"  # a phone's window grows with what does not fit
    out = f"[...document.querySelectorAll('body *')].filter(at => {inside} && {wider})"
    assert tab.run(f"{out}.map(at => at.outerHTML.slice(0, 99))") == []
    cut = f"[...document.querySelectorAll('svg text')].filter(at => {wider}).length"
    assert page == "hostile" or tab.run(cut) == 0


def test_a_strangers_text_does_nothing(tab, hostile):
    tab.resize(1280)
    tab.open(hostile)
    title = tab.run("document.title")
    open_all(tab)
    acts = """for (const at of document.querySelectorAll('*')) {
        for (const kind of ['mouseover', 'focus', 'click', 'toggle', 'error', 'load', 'pageshow', 'begin'])
            if (!at.closest('a') || kind !== 'click') at.dispatchEvent(new Event(kind, {bubbles: false}));
    } 1"""
    tab.run(acts)
    tab.run("new Promise(done => setTimeout(() => done(1), 300))")
    assert tab.run(f"typeof window.{MARK}") == "undefined"
    assert tab.run("document.title") == title != MARK
    assert tab.requests() == [hostile.as_uri()]
    assert tab.complaints() == []  # not even an attempt that the policy had to stop
    assert tab.run("document.scripts.length") == 2
    assert tab.run("document.querySelectorAll('img, iframe, form, base, link, object, embed, animate').length") == 0
    shown = tab.run("document.body.innerText")
    assert TEXTS["script"] in shown  # it is there, as text


def test_keys_alone_open_a_task(tab, usual):
    tab.resize(1280)
    tab.open(usual)
    tab.run("document.querySelector('section.task summary').focus(); 1")
    tab.press("Enter")
    assert tab.run("document.querySelector('section.task details').open") is True
    tab.press("Tab")
    assert tab.run("document.querySelector('section.task').contains(document.activeElement)") is True
    ring = tab.run("getComputedStyle(document.activeElement).outlineStyle")
    assert ring not in ("none", "")


def test_a_table_sorts_and_a_link_opens_its_task(tab, usual):
    tab.resize(1280)
    tab.open(usual)
    column = "[...document.querySelectorAll('table.speeds tbody tr')].map(row => +row.cells[2].dataset.v)"
    tab.run("document.querySelectorAll('table.speeds thead button')[1].click(); 1")
    scores = tab.run(column)
    assert scores == sorted(scores, reverse=True)
    tab.run("document.querySelectorAll('table.speeds thead button')[1].click(); 1")
    assert tab.run(column) == sorted(scores)
    tab.run(
        "document.querySelector('table.speeds tbody a').click(); new Promise(done => setTimeout(() => done(1), 100))"
    )
    assert tab.run("document.querySelector(location.hash + ' details').open") is True
    tab.run(
        "const box = document.querySelector('.search'); box.value = 'swiglu'; box.dispatchEvent(new Event('input')); 1"
    )
    assert tab.run(
        "[...document.querySelectorAll('section.task')].filter(at => at.checkVisibility()).map(at => at.dataset.task)"
    ) == ["L2/swiglu"]


def test_it_is_dark_where_the_reader_likes_it_dark_and_prints_on_white(tab, usual, tmp_path):
    tab.resize(1280)
    tab.open(usual)
    paper = {}
    for scheme in ("light", "dark"):
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        paper[scheme] = tab.run("getComputedStyle(document.body).backgroundColor")
        tab.picture(tmp_path / f"{scheme}.png")
        assert (tmp_path / f"{scheme}.png").stat().st_size > 50_000
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}
    tab.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.call("Emulation.setEmulatedMedia", media="", features=[])
    assert len(tab.call("Page.printToPDF")["data"]) > 100_000


def test_it_says_all_it_has_to_say_without_its_script(tab, usual):
    tab.resize(1280)
    tab.open(usual)
    open_all(tab)
    words = "document.querySelector('main').innerText.replace(/\\s+/g, ' ')"
    with_script = tab.run(words)
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(usual)
        open_all(tab)
        without = tab.run(words)
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
    assert without == with_script.replace("Open all Close all ", "").replace("Open all", "").replace("Close all", "")
