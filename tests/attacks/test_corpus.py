"""Every attack of the corpus is refused for its reason, leaves nothing behind, and hurts nobody after it."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from corpus_files import HERE, Entry, attacks, honest

from pallas_evo import tasks
from pallas_evo.config import Config
from pallas_evo.evaluation import Evaluator
from pallas_evo.jail import Worker
from pallas_evo.reasons import GATES, REASONS
from pallas_evo.types import Evaluation

DEADLINE_S = 5.0
SLACK_S = 25.0  # a hang guard, not a measurement: a loaded machine starts processes slowly
ENVIRONMENT_CANARY = "canary-of-the-environment-4d1f7c"
SIBLING_CANARY = "canary-of-another-process-91be02"
HOME_CANARY = "canary-of-the-home-folder-7a60ee"
MARKER = "pallas_evo_attack_was_here"
ONLY_STATIC = ("contract", "source_analysis", "trace", "validate")
HARMFUL = frozenset({"35", "51", "52", "53", "59", "60", "62"})
COMPILES = importlib.util.find_spec("triton") is not None


def config(*, static: bool = False, compiled: bool = False) -> Config:
    """The defaults with short deadlines, at the small and the variant size only."""
    made = Config()
    made.trace.deadline_s = made.artefact.deadline_s = made.run.deadline_s = made.compile.deadline_s = DEADLINE_S
    made.compile.enabled = compiled
    made.judging.medium_seeds = 0
    made.judging.timed_sizes = ["small"] if compiled else []
    if static:  # what is refused before it runs needs one size
        made.judging.variant_seeds = 0
    return made


@dataclasses.dataclass
class Watch:
    """What must stay as it was while candidates are judged."""

    tokens: list[str]
    home: Path
    cwd: Path
    temporary: Path
    tcp: socket.socket
    udp: socket.socket
    unix: socket.socket
    evaluators: dict[str, Evaluator]

    def evaluate(self, entry: Entry, kind: str) -> Evaluation:
        source = entry.source.replace("45711", str(self.tcp.getsockname()[1]))
        source = source.replace("ATTACK_SOCKET", f"pallas-evo-attack-{os.getpid()}")
        source = source.replace("ATTACK_HOME", str(self.home))
        if kind not in self.evaluators:
            made = config(static=kind == "static", compiled=kind == "compiled")
            self.evaluators[kind] = Evaluator(made, target="cpu")
        return self.evaluators[kind].evaluate(source, tasks.get_task(entry.task))

    def survivors(self) -> list[str]:
        """Processes that carry a token of one of our workers."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    environ = (folder / "environ").read_bytes()
                    if any(f"PALLAS_EVO_WORKER={token}".encode() in environ for token in self.tokens):
                        found.append(f"{folder.name}: {(folder / 'cmdline').read_bytes()[:200]!r}")
        return found

    def left_behind(self) -> list[str]:
        """Files that should not be there."""
        found = [str(path) for path in self.temporary.rglob("*")]
        found += [str(path) for path in self.home.rglob("*") if path.name != "key"]
        found += [str(path) for path in self.cwd.rglob("*")]
        packages = Path(importlib.util.find_spec("jax").origin).parent.parent  # type: ignore[union-attr,arg-type]
        for place in ("/tmp", "/var/tmp", "/dev/shm", str(packages), str(HERE), str(HERE.parent.parent)):
            found += [str(path) for path in Path(place).glob(f"*{MARKER}*")]
        return found

    def connections(self) -> list[str]:
        """What knocked at a listener."""
        found = []
        for name, listener in (("tcp", self.tcp), ("unix", self.unix)):
            with contextlib.suppress(BlockingIOError):
                found.append(f"{name}: {listener.accept()[1]}")
        with contextlib.suppress(BlockingIOError):
            found.append(f"udp: {self.udp.recvfrom(100)}")
        return found

    def assert_untouched(self, evaluation: Evaluation) -> None:
        end = time.monotonic() + 5.0
        while self.survivors() and time.monotonic() < end:
            time.sleep(0.05)
        assert self.survivors() == []
        self.tokens.clear()
        assert self.left_behind() == []
        assert self.connections() == []
        said = json.dumps(dataclasses.asdict(evaluation), default=str)
        for canary in (ENVIRONMENT_CANARY, SIBLING_CANARY, HOME_CANARY, *inherited()):
            assert canary not in said, f"{canary[:12]}... is in the evaluation"


def inherited() -> list[str]:
    """Values of this process's first environment that nobody writes by chance."""
    entries = Path("/proc/self/environ").read_bytes().decode(errors="replace").split("\0")
    values = [entry.partition("=")[2] for entry in entries]
    return [value for value in values if len(value) >= 24 and "/" not in value]


def listener(family: int, address: Any) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.bind(address)
    made.listen(8)
    made.setblocking(False)
    return made


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    home, cwd, temporary = (tmp_path_factory.mktemp(name) for name in ("home", "cwd", "temporary"))
    (home / "key").write_text(HOME_CANARY)
    tcp = listener(socket.AF_INET, ("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(tcp.getsockname())
    udp.setblocking(False)
    unix = listener(socket.AF_UNIX, f"\0pallas-evo-attack-{os.getpid()}")
    tokens: list[str] = []
    start = Worker.__init__

    def noted(self: Worker, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        tokens.append(self.token)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("OPENAI_API_KEY", ENVIRONMENT_CANARY)
        patch.setenv("PALLAS_EVO_CANARY", ENVIRONMENT_CANARY)
        patch.setattr(tempfile, "tempdir", str(temporary))
        patch.setattr(Worker, "__init__", noted)
        patch.chdir(cwd)
        sibling = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()", SIBLING_CANARY],
            stdin=subprocess.PIPE,
            env={"PALLAS_EVO_CANARY": SIBLING_CANARY},
        )
        made = Watch(tokens, home, cwd, temporary, tcp, udp, unix, {})
        try:
            yield made
        finally:
            for evaluator in made.evaluators.values():
                evaluator.close()
            sibling.kill()
            sibling.communicate()
            for each in (tcp, udp, unix):
                each.close()
            shutil.rmtree(temporary, ignore_errors=True)


HONEST = next(entry for entry in honest() if entry.name == "block_specs")


@pytest.mark.parametrize("entry", attacks(), ids=lambda entry: entry.name)
def test_attack_is_refused_and_leaves_nothing_behind(entry: Entry, watch: Watch) -> None:
    gates = {REASONS[reason][0] for reason in entry.reasons}
    kind = "compiled" if "compile" in gates else "static" if gates <= set(ONLY_STATIC) else "run"
    if kind == "compiled" and not COMPILES:
        pytest.skip("the `ptx` extra is not installed: nothing compiles here")
    if "nondeterministic_trace" in entry.reasons or "17" in entry.classes:
        kind = "run"  # what is kept from one size to the next needs two
    evaluation = watch.evaluate(entry, kind)
    watch.assert_untouched(evaluation)
    assert evaluation.status == "rejected", evaluation
    assert evaluation.reason in entry.reasons, evaluation.message
    assert evaluation.correct is False
    assert evaluation.combined_score == 0.0
    assert evaluation.stage in GATES
    assert evaluation.message
    assert evaluation.text_feedback
    assert "Traceback (most recent call last)" not in evaluation.text_feedback + evaluation.message
    assert all(character.isprintable() or character in "\n\t" for character in evaluation.text_feedback)
    assert evaluation.duration_s < 2 * DEADLINE_S + SLACK_S
    if HARMFUL & set(entry.classes):
        after = watch.evaluate(HONEST, "static")
        assert after.correct, f"after {entry.name}: {after.reason}: {after.message}"
        assert after.combined_score == 1.0
        watch.assert_untouched(after)


@pytest.mark.parametrize("entry", honest(), ids=lambda entry: entry.name)
def test_honest_variant_is_accepted(entry: Entry, watch: Watch) -> None:
    evaluation = watch.evaluate(entry, "run")
    assert evaluation.correct, f"{evaluation.reason}: {evaluation.message}"
    assert evaluation.status == "accepted"
    assert evaluation.combined_score == 1.0
    assert all(gate.passed for gate in evaluation.gates)
    watch.assert_untouched(evaluation)


def test_corpus_is_large_and_each_file_is_of_its_own() -> None:
    found = attacks()
    assert len(found) >= 60
    assert len(honest()) >= 18
    assert len({entry.says for entry in found}) == len(found)
    assert len({entry.source for entry in found}) == len(found)
    assert not [(entry.name, reason) for entry in found for reason in entry.reasons if reason not in REASONS]
    assert all(entry.reasons and entry.classes for entry in found)


# Classes of cheating that need a GPU, a clock or a backward pass, and so have no file here.
NEED_A_GPU = {
    "37",  # CUDA graphs
    "39",  # L2 persistence
    "40",  # impossible times
    "65",  # a wrong backward pass: no task has one
}


def test_every_class_that_exists_without_a_gpu_has_an_attack() -> None:
    seen = {name for entry in attacks() for name in entry.classes}
    assert {str(number) for number in range(1, 70)} - seen - NEED_A_GPU == set()
