"""Intermediate texts: whole or not there, stored once for equal content, carried by a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from archive_samples import CHILD, PARENT, TASK, evaluation, rejected

from pallas_evo.archive import Archive, TextRecord, open_archive, schema

TEXTS = {"jaxpr": "\0\udc80{ a }\r\n", "stablehlo": "module {}\n" * 1000, "ptx_sm_80": ""}


def add(archive: Archive, source: str = PARENT, **changes: object) -> str:
    archive.add_tasks([TASK])
    program = archive.add_program(TASK.id, source, origin="candidate")
    return archive.add_evaluation(program, evaluation(source, **changes))


def count(archive: Archive, table: str) -> int:
    with archive._reading() as connection:
        return len(connection.execute(schema.metadata.tables[table].select()).all())


@pytest.fixture
def archive(tmp_path: Path):
    with open_archive(tmp_path / "archive.sqlite") as made:
        yield made


def test_a_text_comes_back_as_it_was(archive: Archive):
    stored = add(archive, texts=TEXTS, texts_size="medium")
    assert archive.texts([stored]) == {
        stored: tuple(TextRecord(kind=kind, size="medium", text=TEXTS[kind]) for kind in sorted(TEXTS))
    }
    assert archive.evaluation(stored) == evaluation(texts=TEXTS, texts_size="medium")


def test_kinds_are_chosen(archive: Archive):
    stored = add(archive, texts=TEXTS, texts_size="small")
    assert [one.kind for one in archive.texts([stored], ["stablehlo", "nothing"])[stored]] == ["stablehlo"]
    assert archive.texts([stored], []) == {}


def test_an_evaluation_without_any_is_left_out(archive: Archive):
    archive.add_tasks([TASK])
    program = archive.add_program(TASK.id, PARENT, origin="candidate")
    assert archive.texts([archive.add_evaluation(program, rejected()), "0" * 32]) == {}


def test_equal_texts_are_stored_once_and_compressed(archive: Archive):
    for source in (PARENT, CHILD):
        add(archive, source, texts=TEXTS, texts_size="medium")
    assert count(archive, "texts") == len(TEXTS)
    assert count(archive, "evaluation_texts") == 2 * len(TEXTS)
    with archive._reading() as connection:
        sizes = [len(row.zlib) for row in connection.execute(schema.texts.select())]
    assert sum(sizes) < len(TEXTS["stablehlo"]) / 10


def test_many_are_read_in_pieces(archive: Archive):
    stored = [add(archive, f"x = {number}\n", texts={"jaxpr": str(number)}, texts_size="small") for number in range(3)]
    asked = [*(f"{number:032}" for number in range(1100)), *stored]
    assert [archive.texts(asked)[one][0].text for one in stored] == ["0", "1", "2"]


def test_a_copy_carries_them(archive: Archive, tmp_path: Path):
    stored = add(archive, texts=TEXTS, texts_size="medium")
    with open_archive(tmp_path / "copy.sqlite") as other:
        assert archive.copy_into(other).added["texts"] == len(TEXTS)
        assert other.evaluation(stored) == archive.evaluation(stored)
        assert archive.copy_into(other).total == 0
