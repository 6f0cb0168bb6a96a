"""The jailed child that validates: frames in (`wire.job`), frames out (`wire.verdict`), nothing else.

MLIR is imported before the process is confined; the first hostile byte is parsed after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pallas_evo.artefact import wire
from pallas_evo.artefact.parsing import context
from pallas_evo.artefact.validator import validate

if TYPE_CHECKING:
    from pallas_evo.jail.frames import Channel

context()


def main(channel: Channel) -> None:
    """Answer jobs until the parent closes its end."""
    while (frame := channel.receive()) is not None:
        channel.send(wire.verdict(validate(*wire.read_job(frame))))
