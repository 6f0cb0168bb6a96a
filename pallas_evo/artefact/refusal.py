"""How a rule says no: one private exception that carries a reason code, turned into a `Rejection` at the door.

Everything that reaches a message went through `clean`: names, attributes and types in an artefact are the candidate's
words, and messages end in logs, in result files and in a language model's prompt.
"""

from __future__ import annotations

from pallas_evo.types import Rejection

MESSAGE_LENGTH = 600
"""Longest message, in characters."""


class Refused(Exception):
    """The artefact breaks a rule. Private to this package: callers get a `Rejection`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def rejection(self) -> Rejection:
        return Rejection(reason=self.reason, message=clean(self.message, MESSAGE_LENGTH))


def clean(text: object, length: int = 80) -> str:
    """`text` as printable ASCII on one line, at most `length` characters."""
    raw = str(text)[: 4 * length]
    line = " ".join("".join(c if " " <= c <= "~" or c.isspace() else "?" for c in raw).split())
    return line if len(line) <= length else line[: length - 3] + "..."


def identifier(text: object) -> str:
    """`text` as a name for people: letters, digits and underscores, 1 to 64 of them."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in str(text)[:64]) or "kernel"
