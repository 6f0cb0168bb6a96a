"""Intermediate texts of evaluations: stored by content, compressed, so that equal programs cost one row of 76 bytes.

They are never read by a listing. A text may hold anything that a tracer's process sent: it is bytes here, whatever
the database takes for text.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, insert, select

from pallas_evo.archive import encoding, schema
from pallas_evo.archive.records import TextRecord
from pallas_evo.archive.writes import insert_new

_CHUNK = 500  # keys in one statement; SQLite takes 999 in its oldest builds


def add_texts(connection: Connection, evaluation_id: str, size: str, texts: Mapping[str, str]) -> None:
    """Store an evaluation's texts, by kind, all traced at one size."""
    hashes = {kind: encoding.sha256_of_text(text) for kind, text in texts.items()}
    packed = {hashes[kind]: zlib.compress(text.encode("utf-8", "surrogatepass"), 6) for kind, text in texts.items()}
    insert_new(connection, schema.texts, [{"sha256": sha256, "zlib": data} for sha256, data in packed.items()])
    for kind, sha256 in hashes.items():
        row = {"evaluation_id": evaluation_id, "kind": kind, "size": size, "sha256": sha256}
        connection.execute(insert(schema.evaluation_texts).values(row))


def texts(
    connection: Connection, evaluation_ids: Sequence[str], kinds: Collection[str] | None = None
) -> dict[str, tuple[TextRecord, ...]]:
    """The texts of many evaluations, of all kinds or of some, by evaluation id; those that have none are left out."""
    link, text = schema.evaluation_texts.c, schema.texts.c
    found: dict[str, list[TextRecord]] = {}
    for start in range(0, len(evaluation_ids), _CHUNK):
        statement = (
            select(link.evaluation_id, link.kind, link.size, text.zlib)
            .join(schema.texts, text.sha256 == link.sha256)
            .where(link.evaluation_id.in_(evaluation_ids[start : start + _CHUNK]))
            .order_by(link.evaluation_id, link.kind)
        )
        if kinds is not None:
            statement = statement.where(link.kind.in_(sorted(kinds)))
        for row in connection.execute(statement):
            content = zlib.decompress(row.zlib).decode("utf-8", "surrogatepass")
            found.setdefault(row.evaluation_id, []).append(TextRecord(kind=row.kind, size=row.size, text=content))
    return {evaluation_id: tuple(records) for evaluation_id, records in found.items()}
