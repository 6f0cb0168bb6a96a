"""A loopback OpenAI-compatible service in our process that answers ShinkaEvolve's prompts with the offline mutator.

It reads the program, its neighbours and their scores out of the prompt, as a language model would, and answers in the
format that the system message asks for. It listens on 127.0.0.1 only; candidates have no network.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from pallas_evo.evolution.blocks import smallest_edit, split_block
from pallas_evo.evolution.mutator import Mutant, OfflineMutator

MODEL = "pallas-evo-offline"
REQUEST_BYTES = 32 << 20

Kind = Literal["diff", "full", "cross", "fix"]

_PROGRAM = re.compile(r"```python\n(.*?)\n?```(.*?)(?=```python\n|\Z)", re.DOTALL)
_SCORE = re.compile(r"Combined score to maximize: ([-+.\deE]+)")
_EXACT = re.compile(r"speedup_over_xla: ([.\deE+-]+)x")  # ShinkaEvolve prints the score with two decimals


def answer(messages: Sequence[dict[str, Any]], mutator: OfflineMutator) -> str:
    """The reply to a conversation: a new mutant, or a sentence that ShinkaEvolve takes for no patch."""
    system = "\n".join(_text(message) for message in messages if message.get("role") == "system")
    users = [_text(message) for message in messages if message.get("role") == "user"]
    shown = next((text for text in reversed(users) if "# Current program" in text), None)
    wrong = next((text for text in reversed(users) if "# Incorrect Program to Fix" in text), None)
    user = shown or wrong
    if user is None:
        return "There is no program in this prompt that a parametric mutator could work on."
    for source, score in scored_programs("\n".join(users)):
        mutator.learn(source, score)
    kind = kind_of(system, user)
    heading = "# Current program" if shown else "# Incorrect Program to Fix"
    program = _code_after(user, heading)
    if program is None:
        return f"Under {heading!r} there is no program."
    if kind == "fix":
        mutant = mutator.repair(program)
    else:
        mate = _code_after(user, "# Crossover Inspiration Programs") if kind == "cross" else None
        mutant = mutator.mutate(program, others=[mate] if mate else [])
    if mutant is None:
        return "Nothing new can be made of this program by parametric mutation."
    return reply(kind, program, mutant)


def kind_of(system: str, user: str) -> Kind:
    """Which of ShinkaEvolve's four kinds of proposal a prompt asks for."""
    if "debugging and fixing an incorrect program" in system or "# Incorrect Program to Fix" in user:
        return "fix"
    if "perform crossover" in system:
        return "cross"
    return "diff" if "<DIFF>" in system else "full"


def scored_programs(text: str) -> Iterator[tuple[str, float]]:
    """Every program in a prompt that is followed by a score."""
    for match in _PROGRAM.finditer(text):
        found = _EXACT.search(match.group(2)) or _SCORE.search(match.group(2))
        if found is not None:
            try:
                yield match.group(1) + "\n", float(found.group(1))
            except ValueError:
                continue


def reply(kind: Kind, source: str, mutant: Mutant) -> str:
    """A mutant in the format that ShinkaEvolve parses."""
    head = f"<NAME>\n{mutant.name}\n</NAME>\n\n<DESCRIPTION>\n{mutant.description}\n</DESCRIPTION>\n\n"
    parts = split_block(source)
    if kind == "diff" and parts is not None:
        search, replace = smallest_edit(parts[1], mutant.block)
        return f"{head}<DIFF>\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n\n</DIFF>\n"
    return f"{head}<CODE>\n```python\n{mutant.source}```\n</CODE>\n"


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content)


def _code_after(text: str, heading: str) -> str | None:
    place = text.rfind(heading)
    match = _PROGRAM.search(text, place) if place >= 0 else None
    return match.group(1) + "\n" if match else None


class _Handler(BaseHTTPRequestHandler):
    """`POST /v1/chat/completions` and nothing else."""

    protocol_version = "HTTP/1.1"
    mutator: OfflineMutator

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length", 0))
            if not self.path.endswith("/chat/completions") or not 0 < length <= REQUEST_BYTES:
                self._send({"error": {"message": "expected POST /v1/chat/completions"}}, 404)
                return
            messages = json.loads(self.rfile.read(length))["messages"]
            text = answer(messages, self.mutator)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._send({"error": {"message": f"expected an OpenAI chat request: {error}"}}, 400)
            return
        self._send(completion(text))

    def _send(self, content: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: stderr is for the run's progress."""


def completion(text: str) -> dict[str, Any]:
    """An OpenAI chat completion with this text; it cost no tokens."""
    return {
        "id": f"offline-{time.time_ns()}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


@contextmanager
def offline_service(mutator: OfflineMutator) -> Iterator[str]:
    """Serve the mutator for the block; yields ShinkaEvolve's name of the model."""
    handler = type("Handler", (_Handler,), {"mutator": mutator})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="offline-mutator")
    thread.start()
    before = {name: os.environ.get(name) for name in ("NO_PROXY", "no_proxy")}
    for name, value in before.items():  # ShinkaEvolve's client would hand even this address to a proxy
        os.environ[name] = ",".join(filter(None, [value, "127.0.0.1"]))
    try:
        yield f"local/{MODEL}@http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.shutdown()
        server.server_close()
        thread.join()
