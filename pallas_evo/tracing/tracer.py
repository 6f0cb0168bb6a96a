"""The tracer's parent: two fresh jailed processes export a candidate at every workload; nothing they say is believed.

What comes back is bytes that some process sent: the validator decides what they are. Words that come back are made
printable, cut to a length, and used in a message to a person only. The Jaxpr that may come last is text to be kept and
shown, under the name of who said it; nothing is decided by it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pallas_evo.config import TraceLimits
from pallas_evo.errors import WorkerFailed
from pallas_evo.jail import Ended, Nursery, Worker, WorkerLimits
from pallas_evo.tracing import teaching
from pallas_evo.tracing.teaching import Trouble
from pallas_evo.types import Rejection, Task, Workload

CHILD = "pallas_evo.tracing.child"
TROUBLE_BYTES = 64 << 10
JAXPR_S = 1.0  # for printing it, after everything that a verdict hangs on is there
LOAD_S = 60.0  # `import jax`, which is not the candidate's time
ENVIRONMENT = {
    "JAX_PALLAS_USE_MOSAIC_GPU": "0",  # a plain pallas_call goes to Triton in every JAX version
    "JAX_PALLAS_VERBOSE_ERRORS": "0",  # the error itself, without the program around it
}


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A candidate's exported programs, as yet unvalidated.

    `modules` and `second` are two independent exports (`Exported.mlir_module_serialized`), each in the order of the
    workloads. `output_text` is what the first process printed. `jail` is the level that it was confined at. `jaxpr` is
    what the first process says that it traced at one of the workloads: text that the candidate may have made up.
    """

    modules: tuple[bytes, ...]
    second: tuple[bytes, ...]
    output_text: str
    jail: str
    device_kind: str
    jaxpr: str | None = None


@dataclass
class _Exports:
    """What one process sent."""

    modules: list[bytes]
    jaxpr: str | None = None


class Tracers:
    """Two processes with JAX loaded, waiting for one candidate; building it does not wait for them.

    A pair serves one `trace` call, which ends it. Start the next pair while the candidate is judged, and its start
    costs nothing. Use it as a context manager, or call `kill`.

    Args:
        warm: export a program of ours while they wait, so that the candidate's is not the first.
    """

    def __init__(
        self,
        limits: TraceLimits,
        *,
        allow_unjailed: bool = False,
        nursery: Nursery | None = None,
        warm: bool = False,
    ) -> None:
        self.limits = limits
        self.used = False
        self._loaded = False
        self.workers: list[Worker] = []
        try:
            for _ in range(2):
                self.workers.append(
                    Worker(
                        CHILD,
                        limits=WorkerLimits(
                            memory_bytes=limits.memory_bytes,
                            cpu_s=limits.cpu_s,
                            file_bytes=limits.file_bytes,
                            output_bytes=limits.output_bytes,
                        ),
                        allow_unjailed=allow_unjailed,
                        env={**ENVIRONMENT, **({"PALLAS_EVO_WARM": "1"} if warm else {})},
                        nursery=nursery,
                    )
                )
        except BaseException:
            self.kill()
            raise

    def ready(self) -> None:
        """Wait until both have loaded JAX. Only our code has run until then.

        Raises:
            WorkerFailed, JailUnavailable: one did not come up.
        """
        if self._loaded:
            return
        for worker in self.workers:
            answer = worker.receive(LOAD_S, 16)
            if answer != b"R":
                said = answer.output_text[-2000:].strip() if isinstance(answer, Ended) else "an unexpected frame"
                raise WorkerFailed(f"The tracer's process could not load JAX; it said: {said or 'nothing'}")
        self._loaded = True

    def kill(self) -> None:
        """End both."""
        for worker in self.workers:
            worker.kill()

    def __enter__(self) -> Tracers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()


def trace(
    source: str,
    task: Task,
    workloads: Sequence[Workload],
    limits: TraceLimits,
    *,
    allow_unjailed: bool = False,
    tracers: Tracers | None = None,
    jaxpr_of: int | None = None,
    jaxpr_bytes: int = 256 << 10,
) -> Traced | Rejection:
    """Export a candidate twice at every workload, in two fresh jailed processes at once.

    The second process takes the workloads in reverse order, so that what one export leaves behind shows in the other.

    Args:
        source: the candidate's file.
        task: what it is a candidate for; used in messages.
        workloads: the sizes, each with the types of inputs and output.
        limits: `deadline_s` starts when the source is handed over and covers both processes.
        allow_unjailed: go on where this machine can confine nothing.
        tracers: a pair started ahead of time, with the same limits; it is used up.
        jaxpr_of: the workload whose Jaxpr is wanted as text, by its place; where none comes in time, or a longer one
            than `jaxpr_bytes`, there is none, and the rest holds.

    Raises:
        JailUnavailable, WorkerFailed: our failure; the candidate has not run.
    """
    wish = (jaxpr_of, jaxpr_bytes)
    return _trace(source, task, workloads, limits, allow_unjailed, tracers, force_triton=False, jaxpr=wish)


def trace_original(
    source: str,
    task: Task,
    workloads: Sequence[Workload],
    limits: TraceLimits,
    *,
    allow_unjailed: bool = False,
) -> Traced | Rejection:
    """As `trace`, with the Triton backend forced on every `pallas_call`: for the TPU-sized originals."""
    return _trace(source, task, workloads, limits, allow_unjailed, None, force_triton=True)


def _trace(
    source: str,
    task: Task,
    workloads: Sequence[Workload],
    limits: TraceLimits,
    allow_unjailed: bool,
    tracers: Tracers | None,
    *,
    force_triton: bool,
    jaxpr: tuple[int | None, int] = (None, 0),
) -> Traced | Rejection:
    if tracers is not None and (tracers.used or tracers.limits != limits):
        raise ValueError("Expected an unused pair of tracers with the limits of this call. Start a new pair.")
    pair = tracers or Tracers(limits, allow_unjailed=allow_unjailed)
    pair.used = True
    with pair:
        pair.ready()
        requests = (
            _request(source, workloads, limits, force_triton, jaxpr),
            _request(source, list(reversed(workloads)), limits, force_triton),
        )
        ends = time.monotonic() + limits.deadline_s
        with ThreadPoolExecutor(2, thread_name_prefix="trace") as threads:
            try:
                answers = list(
                    threads.map(lambda n: _export(pair, n, requests[n], limits, ends), range(2)),
                )
            except BaseException:
                for worker in pair.workers:
                    worker.interrupt()  # or the threads would be waited for until the deadline
                raise
        for answer in answers:  # one that was stopped because the other had failed has nothing to say
            if isinstance(answer, Trouble):
                return teaching.rejection(answer, source, task, workloads, limits)
        first, second = answers
        if not isinstance(first, _Exports) or not isinstance(second, _Exports):  # only a Trouble stops the other
            raise WorkerFailed("A tracer was stopped for no reason.")
        return Traced(
            modules=tuple(first.modules),
            second=tuple(reversed(second.modules)),
            output_text=pair.workers[0].output_text,
            jail=pair.workers[0].level,
            device_kind=limits.device_kind,
            jaxpr=first.jaxpr,
        )


def _request(
    source: str,
    workloads: Sequence[Workload],
    limits: TraceLimits,
    force_triton: bool,
    jaxpr: tuple[int | None, int] = (None, 0),
) -> bytes:
    """What a tracer is told: the source, and the types of each size under a name that says nothing of its origin."""
    return json.dumps(
        {
            "source": source,
            "force_triton": force_triton,
            "device_kind": limits.device_kind,
            "artefact_bytes": limits.artefact_bytes,
            "jaxpr_of": jaxpr[0],
            "jaxpr_bytes": jaxpr[1],
            "workloads": [
                {
                    "inputs": [[list(spec.shape), spec.dtype] for spec in workload.inputs],
                    "output": [list(workload.output.shape), workload.output.dtype],
                }
                for workload in workloads
            ],
        }
    ).encode()


def _export(pair: Tracers, which: int, request: bytes, limits: TraceLimits, ends: float) -> _Exports | Trouble | None:
    """All frames of one process. None when it was stopped because the first one was refused.

    The first is never stopped for the second's sake, so that the same candidate is told the same thing each time.
    """
    worker, other = pair.workers[which], pair.workers[1 - which]
    asked = json.loads(request)
    count = len(asked["workloads"])
    modules: list[bytes] = []
    worker.send(request, max(0.0, ends - time.monotonic()))
    while len(modules) < count:
        frame = worker.receive(ends - time.monotonic(), max(limits.artefact_bytes, TROUBLE_BYTES) + 1)
        trouble: Trouble | None
        if isinstance(frame, Ended):
            if frame.interrupted:
                return None
            trouble = Trouble.of_end(frame, at=len(modules))
        elif frame[:1] == b"M" and len(frame) <= limits.artefact_bytes + 1:
            modules.append(frame[1:])
            continue
        elif frame[:1] == b"E" and len(frame) <= TROUBLE_BYTES + 1:
            trouble = Trouble.of_message(_parsed(frame[1:]), worker.output_text, at=len(modules))
        else:
            trouble = Trouble(stage="garbage", at=len(modules), output_text=worker.output_text)
        if which == 1:
            return trouble.at_workload(count - 1 - len(modules))
        other.interrupt()
        return trouble
    if asked["jaxpr_of"] is None:
        return _Exports(modules)
    return _Exports(modules, _jaxpr(worker, min(JAXPR_S, ends - time.monotonic()), asked["jaxpr_bytes"]))


def _jaxpr(worker: Worker, deadline_s: float, most_bytes: int) -> str | None:
    """The text that the process sends last. One that is late, too long or no such frame is none."""
    frame = worker.receive(max(0.0, deadline_s), most_bytes + 1)
    if isinstance(frame, Ended) or frame[:1] != b"J" or len(frame) == 1:
        return None
    return frame[1:].decode("utf-8", "replace")


def _parsed(text: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    return {"stage": "garbage"}
