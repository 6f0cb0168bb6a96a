"""An export's folder: whole or not there, and nothing of anybody else's is replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pallas_evo.errors import UsageError
from pallas_evo.reporting.card import Tally, dataset_card
from pallas_evo.reporting.dataset_folder import new_folder

CARD = dataset_card(Tally(), version="1", day="today")


def export(out: Path, word: str = "new") -> None:
    with new_folder(out) as folder:
        (folder / "README.md").write_text(CARD)
        (folder / "kernels.jsonl").write_text(word)


def test_a_new_folder_and_its_parents(tmp_path):
    export(tmp_path / "some" / "where")
    assert (tmp_path / "some" / "where" / "kernels.jsonl").read_text() == "new"
    assert os.listdir(tmp_path / "some") == ["where"]


def test_an_empty_folder_and_an_earlier_export_are_replaced(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    export(out, "first")
    (out / "level_1.parquet").write_text("of the first")
    export(out, "second")
    assert sorted(os.listdir(out)) == ["README.md", "kernels.jsonl"]
    assert (out / "kernels.jsonl").read_text() == "second"
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    export(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "kernels.jsonl").exists()


def _file(out: Path) -> None:
    out.write_text("mine")


def _others(out: Path) -> None:
    out.mkdir()
    (out / "thesis.tex").write_text("mine")


def _added(out: Path) -> None:
    export(out)
    (out / "notes.txt").write_text("mine")


def _same_names(out: Path) -> None:
    out.mkdir()
    (out / "README.md").write_text("# mine")


def _no_card(out: Path) -> None:
    out.mkdir()
    (out / "kernels.jsonl").write_text("mine")


def _inside_a_file(out: Path) -> None:
    out.parent.write_text("mine")


@pytest.mark.parametrize("make", [_file, _others, _added, _same_names, _no_card, _inside_a_file])
def test_what_is_there_is_not_replaced(tmp_path, make):
    out = tmp_path / "parent" / "out"
    if make is not _inside_a_file:
        out.parent.mkdir()
    make(out)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="--out"):
        export(out, "second")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(tmp_path, kind):
    out = tmp_path / "out"
    export(out, "first")

    def fail() -> None:
        with new_folder(out) as folder:
            (folder / "README.md").write_text("half")
            raise kind

    with pytest.raises(kind):
        fail()
    assert (out / "kernels.jsonl").read_text() == "first"
    assert os.listdir(tmp_path) == ["out"]


def test_the_old_one_comes_back_where_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    out = tmp_path / "out"
    export(out, "first")
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="Input"):
        export(out, "second")
    assert (out / "kernels.jsonl").read_text() == "first"
    assert os.listdir(tmp_path) == ["out"]


def test_what_comes_while_it_is_made_is_not_replaced(tmp_path):
    out = tmp_path / "out"

    def export_late() -> None:
        with new_folder(out):
            out.mkdir()
            (out / "mine.txt").write_text("mine")

    with pytest.raises(UsageError, match=r"mine\.txt"):
        export_late()
    assert os.listdir(out) == ["mine.txt"]
