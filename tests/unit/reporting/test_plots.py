"""Plots as files: all that there is to draw, well formed, and safe names whatever a stranger calls his things."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from hostile_texts import TEXTS
from page_samples import FACTS, Made, evolved, view, with_text

from pallas_evo.errors import UsageError
from pallas_evo.reporting.plots import _name, write_plots
from pallas_evo.reporting.report import read_report


def test_each_plot_is_there_as_png_and_as_svg(tmp_path):
    made = write_plots(read_report([evolved("L1/matmul"), evolved("L1/relu")], FACTS), tmp_path / "plots")
    assert sorted(tmp_path.joinpath("plots").iterdir()) == sorted(made)
    names = {path.stem for path in made}
    where = "NVIDIA-H200-cupti-medium"
    assert names == {
        f"speed-{where}", f"fast-{where}", f"roofline-{where}", f"progress-L1-relu-{where}",
        f"progress-L1-matmul-{where}", "rejections",
    }  # fmt: skip
    for path in made:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        else:
            said = "".join(ElementTree.parse(path).getroot().itertext())
            assert "L1/relu" in said or not path.stem.startswith("speed")


def test_the_same_report_gives_the_same_files(tmp_path):
    report = read_report([view_reader()], FACTS)
    for path in write_plots(report, tmp_path / "a"):
        again = {one.name: one for one in write_plots(report, tmp_path / "b")}[path.name]
        assert path.read_bytes() == again.read_bytes()


def view_reader() -> Made:
    return Made(name="x", views=[view("L1/relu", 1.2)])


def test_identities_have_files_of_their_own(tmp_path):
    views = [view("L1/relu", 1.2), view("L1/relu", 2.0, sizes=("large",)), view("L1/relu", 2.0, device="NVIDIA-H200")]
    made = write_plots(read_report([Made(name="x", views=views)], FACTS), tmp_path)
    assert {path.stem for path in made if path.stem.startswith("speed")} == {
        "speed-NVIDIA-H200-cupti-medium", "speed-NVIDIA-H200-cupti-large", "speed-NVIDIA-H200-cupti-medium-2",
    }  # fmt: skip


def test_what_was_not_timed_is_not_drawn(tmp_path):
    made = write_plots(read_report([evolved("L1/relu", device="cpu", timer="untimed")], FACTS), tmp_path)
    assert {path.stem for path in made} == {"rejections"}
    assert write_plots(read_report([], FACTS), tmp_path / "none") == ()


@pytest.mark.parametrize(
    "name", ["mathtext", "script", "cdata", "controls", "surrogates", "paths", "bidi", "wide line", "empty"]
)
def test_a_strangers_name_is_only_drawn(tmp_path, name):
    text = TEXTS[name]
    report = read_report([with_text(evolved("L1/relu", generations=4), text)], replace(FACTS, tasks=(text,)))
    for path in write_plots(report, tmp_path / "plots"):
        assert path.parent == tmp_path / "plots"
        assert len(path.name) < 120
        if path.suffix == ".svg":
            tags = {one.tag.rpartition("}")[2] for one in ElementTree.parse(path).getroot().iter()}
            assert not {"script", "foreignObject", "image"} & tags
    assert [one.name for one in tmp_path.iterdir()] == ["plots"]


def test_names_are_plain_and_never_twice():
    taken: set[str] = set()
    made = [_name(taken, "../a", "B c"), _name(taken, "a", "b/C"), _name(taken, None, "???"), _name(taken, "x" * 500)]
    assert made == ["a-B-c", "a-b-C-2", "x", "x" * 80]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="expected a folder that can be written"):
        write_plots(read_report([view_reader()], FACTS), tmp_path / "file")


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"matplotlib.*pallas-evo\[report\]"):
        write_plots(read_report([], FACTS), tmp_path)
