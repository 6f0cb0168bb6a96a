"""C on a GPU, the parent's side: one process for one candidate, killed whole when it hangs or faults."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from pallas_evo.config import RunLimits
from pallas_evo.errors import DeviceUnavailable, TimerUnavailable, WorkerFailed
from pallas_evo.jail import Ended, Nursery, Worker, WorkerLimits, printable
from pallas_evo.running import tuning, wire
from pallas_evo.running.arena import Arena
from pallas_evo.running.lease import lease
from pallas_evo.running.turns import SCALED, Turn
from pallas_evo.types import Artefact, Rejection, Workload

CHILD = "pallas_evo.running.device_child"
START_S = 120.0
COMPILE_S = 60.0
TRANSFER_S = 60.0
MEASURED_RUNS = 100  # a measurement may take as long as this many runs, beside the deadline of one
HEADER_BYTES = 1 << 20

# What CUDA and its libraries need of the caller's environment; nothing else of it gets in.
_PASSED = (
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
)
_FAULTS = (
    "ILLEGAL_ADDRESS",
    "illegal memory",
    "MISALIGNED",
    "misaligned",
    "LAUNCH_FAILED",
    "unspecified launch failure",
)


def environment(platform: str = "cuda") -> dict[str, str]:
    """What a GPU's process needs in its environment, beside what every child has."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {
        **passed,
        "JAX_PLATFORMS": platform,
        "CUDA_VISIBLE_DEVICES": passed.get("CUDA_VISIBLE_DEVICES", "0"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_FLAGS": f"{tuning.FLAG}={tuning.folder()}",
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    }


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Raw samples in us of a program and of the XLA baseline, by the named timer and by the wall clock.

    `kernels` counts the launches of one call.
    """

    timer: str
    candidate_us: tuple[float, ...]
    baseline_us: tuple[float, ...]
    wall_candidate_us: tuple[float, ...]
    wall_baseline_us: tuple[float, ...]
    kernels: dict[str, int]


class DeviceRunner:
    """One GPU process for one candidate. Starting does not wait; use it as a context manager.

    Threads may share it: it does one thing after another.
    """

    def __init__(self, limits: RunLimits, *, platform: str = "cuda", nursery: Nursery | None = None) -> None:
        self.limits = limits
        self._device: str | None = None
        self._compiled: set[str] = set()
        self._baselines: set[str] = set()
        self.seconds: dict[str, float] = {}  # the host's, of the last run of each size
        self._dead: Rejection | None = None
        self._lock = threading.RLock()
        self._inward, self._outward = Arena(), Arena()
        try:
            self._worker = Worker(
                CHILD,
                limits=WorkerLimits(
                    memory_bytes=None,
                    cpu_s=None,
                    file_bytes=None,  # arenas are files, too
                    scratch_bytes=1 << 30,
                    open_files=None,
                    processes=None,
                ),
                jailed=False,  # it runs none of the candidate's Python, and CUDA starts threads and helper processes
                env=environment(platform),
                inherited=(self._inward.descriptor, self._outward.descriptor),
                nursery=nursery,
            )
        except BaseException:
            self._inward.close()
            self._outward.close()
            raise

    @property
    def device(self) -> str:
        """The GPU's name as JAX gives it; waits for the process to come up.

        Raises:
            DeviceUnavailable: the process found no GPU.
        """
        with self._lock:
            if self._device is None:
                try:
                    answer = self._worker.receive(START_S, HEADER_BYTES)
                except WorkerFailed as error:
                    raise DeviceUnavailable(f"The GPU's process did not start: {error}") from error
                if isinstance(answer, Ended):
                    raise DeviceUnavailable(
                        f"JAX found no usable GPU ({answer.reason}); it said: {answer.output_text[-1500:].strip()}"
                    )
                self._device = str(wire.unpack(answer)[0]["device"])
            return self._device

    @property
    def alive(self) -> bool:
        """Whether the process is there, up or still coming up."""
        return self._worker.alive

    def compile(self, *artefacts: Artefact, baselines: Sequence[str] = ()) -> float | Rejection:
        """Compile programs by XLA side by side, each under its workload's label; the seconds that it took.

        Args:
            baselines: the labels of those that will be timed: what they are timed against, the task's reference
                jitted by XLA, is compiled beside them.

        Raises:
            DeviceUnavailable, WorkerFailed: ours.
        """
        programs = [{"module": artefact.module, **_described(artefact.workload)} for artefact in artefacts]
        timed = [artefact.workload for artefact in artefacts if artefact.workload.label in baselines]
        request = {"op": "compile", "programs": programs, "baselines": [_described(one) for one in timed]}
        # XLA tries variants of matrix products out on the GPU; a candidate's program holds Triton calls and moves only.
        untuned = [workload for workload in timed if not tuning.tuned(workload)]
        with self.alone() if untuned else self._lock:
            said = self._ask(request, COMPILE_S)
        if isinstance(said, Rejection):
            return said
        for workload in untuned:
            tuning.note_tuned(workload)
        self._compiled.update(artefact.workload.label for artefact in artefacts)
        self._baselines.update(workload.label for workload in timed)
        return float(said["seconds"])

    def run(
        self, artefact: Artefact, inputs: Sequence[np.ndarray], *, deadline_s: float | None = None
    ) -> tuple[np.ndarray, None, float] | Rejection:
        """Run one program twice over poisoned memory: its output and the host's seconds for the second call.

        Args:
            deadline_s: for the kernels, transfers to the GPU not counted; the limits' without it.

        Raises:
            DeviceUnavailable, WorkerFailed: ours.
        """
        label = artefact.workload.label
        if label not in self._compiled:
            compiled = self.compile(artefact)
            if isinstance(compiled, Rejection):
                return compiled
        with self._beside():
            request = {"op": "run", "label": label, "inputs": self._inward.write(inputs)}
            said = self._ask(request, deadline_s or self.limits.device_deadline_s, placing=True)
            if isinstance(said, Rejection):
                return said
            output = self._outputs(said, artefact, 1)[0]
            self.seconds[label] = float(said["seconds"])
        if not said["unchanged"]:
            return Rejection(
                reason="input_mutated", message="An input was different after the run: a kernel wrote to it."
            )
        if not said["agree"]:
            return Rejection(
                reason="nondeterministic",
                message="Two runs on the same inputs gave different outputs: elements are never written, or depend on "
                "the order of programs.",
            )
        return output, None, self.seconds[label]

    def prepare(
        self,
        artefact: Artefact,
        base: Sequence[np.ndarray],
        turns: Sequence[Sequence[Turn]],
        baseline_turns: Sequence[Sequence[Turn]],
        timer: str,
        *,
        against: Artefact | None = None,
    ) -> Rejection | None:
        """Get a measurement of a program that has run ready, beside others who use the GPU.

        Args:
            artefact: the program.
            base: an input set that the GPU has not seen.
            turns: how each timed call's inputs come from the base.
            baseline_turns: other input sets, used in turn for the baseline.
            timer: a name of running.timers.TIMERS.
            against: time against this compiled program, in place of the XLA baseline.

        Raises:
            DeviceUnavailable, WorkerFailed: ours, a timer that is not there for one.
        """
        workload = artefact.workload
        missing = against is None and workload.label not in self._baselines
        if missing or workload.label not in self._compiled:
            made = self.compile(artefact, baselines=[workload.label] if against is None else [])
            if isinstance(made, Rejection):
                return made
        with self._beside():
            request = {
                "op": "prepare",
                "label": workload.label,
                "against": against.workload.label if against else None,
                "timer": timer,
                "inputs": self._inward.write(base),
                "turns": [[(turn.shift, turn.factor) for turn in one] for one in turns],
                "baseline_turns": [[(turn.shift, turn.factor) for turn in one] for one in baseline_turns],
            }
            said = self._ask(request, self.limits.deadline_s, placing=True)
        return said if isinstance(said, Rejection) else None

    def measure(self, artefact: Artefact, timer: str) -> Timed | Rejection:
        """Take the samples that `prepare` made ready; call it within `alone`.

        Raises:
            DeviceUnavailable, WorkerFailed: ours.
        """
        label = artefact.workload.label
        request = {"op": "measure", "label": label, "timer": timer}
        said = self._ask(request, self.limits.device_deadline_s + MEASURED_RUNS * self.seconds.get(label, 0.0))
        if isinstance(said, Rejection):
            return said

        def samples(name: str) -> tuple[float, ...]:
            return tuple(float(sample) for sample in said[name])

        return Timed(
            timer=str(said["timer"]),
            candidate_us=samples("candidate_us"),
            baseline_us=samples("baseline_us"),
            wall_candidate_us=samples("wall_candidate_us"),
            wall_baseline_us=samples("wall_baseline_us"),
            kernels=dict(said["kernels"]),
        )

    def timed_outputs(self, artefact: Artefact, keep: Sequence[int]) -> list[np.ndarray] | Rejection:
        """Outputs of the last measurement's timed calls.

        Args:
            keep: which of them, by their place; the program cannot know.

        Raises:
            DeviceUnavailable, WorkerFailed: ours.
        """
        with self._beside():
            said = self._ask({"op": "outputs", "keep": list(keep)}, TRANSFER_S)
            return said if isinstance(said, Rejection) else self._outputs(said, artefact, len(keep))

    @contextmanager
    def alone(self) -> Iterator[float]:
        """Nobody else uses the GPU, and no other thread this process, within the block; yields the seconds waited."""
        with self._lock:
            _ = self.device
            with lease() as waited_s:
                yield waited_s

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """Others may use the GPU, but nobody times. The lock comes before the lease everywhere, or two would block."""
        with self._lock:
            _ = self.device
            with lease(shared=True):
                yield

    def copy_us(self, size_bytes: int, repeats: int) -> tuple[float, ...]:
        """Device time, in us, of reading and writing `size_bytes` once each; call it within `alone`.

        Raises:
            DeviceUnavailable, WorkerFailed: ours, CUPTI that is not there for one.
        """
        said = self._ask({"op": "bandwidth", "bytes": size_bytes, "repeats": repeats}, self.limits.deadline_s)
        if isinstance(said, Rejection):
            raise WorkerFailed(f"The copy of {size_bytes} bytes failed: {said.message}")
        return tuple(float(sample) for sample in said["samples_us"])

    def _outputs(self, said: Mapping[str, Any], artefact: Artefact, count: int) -> list[np.ndarray]:
        output = artefact.workload.output
        arrays = self._outward.read(said["outputs"])
        if len(arrays) != count or any(a.shape != output.shape or a.dtype.name != output.dtype for a in arrays):
            raise WorkerFailed(f"The GPU's process answered with {said['outputs']}, not with {count} of {output}.")
        return arrays

    def _ask(self, header: Mapping[str, object], deadline_s: float, *, placing: bool = False) -> Any:
        """One request and its answer; with `placing` the deadline starts when the child has its inputs in place."""
        with self._lock:
            if self._dead is not None:
                return self._dead
            _ = self.device
            self._worker.send(wire.pack(header), deadline_s)
            answer = self._worker.receive(TRANSFER_S, HEADER_BYTES) if placing else None
            if answer is None or (isinstance(answer, bytes) and wire.unpack(answer)[0]["status"] == "placed"):
                answer = self._worker.receive(deadline_s, HEADER_BYTES)
            if isinstance(answer, Ended):
                self._dead = _why(answer, str(header["op"]), deadline_s)
                return self._dead
            said, _ = wire.unpack(answer)
            if said["status"] == "error":
                self._dead = _reason(str(said["stage"]), printable(str(said["message"])))
                return self._dead
            return said

    def stop(self) -> None:
        """Send the process its end, from whichever thread, and do not wait for it."""
        self._worker.stop()

    def kill(self) -> None:
        """End the process; the GPU is free a moment later."""
        self._worker.kill()
        self._inward.close()
        self._outward.close()

    def __enter__(self) -> DeviceRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()


def _described(workload: Workload) -> dict[str, Any]:
    from pallas_evo.tasks import get_task  # not above: the executor's jail imports this package and has no tasks

    return {
        "label": workload.label,
        "task": workload.task_id,
        "inputs": [[list(spec.shape), spec.dtype] for spec in workload.inputs],
        "scaled": [spec.law in SCALED for spec in get_task(workload.task_id).inputs],
        "output": [list(workload.output.shape), workload.output.dtype],
    }


def _why(ended: Ended, stage: str, deadline_s: float) -> Rejection:
    if ended.reason == "timeout" and stage == "compile":
        return Rejection(
            reason="compile_timeout",
            message=f"XLA did not compile the program in {deadline_s:g} s; use smaller blocks.",
        )
    if ended.reason == "timeout":
        return Rejection(
            reason="endless",
            message=f"The kernel did not end within {deadline_s:g} s on the GPU. Look for a loop that never comes to "
            "its bound.",
        )
    said = printable(ended.output_text[-1500:]).strip()
    if any(word in said for word in _FAULTS) or ended.signal in ("SIGABRT", "SIGSEGV"):
        return Rejection(reason="device_fault", message=f"The GPU's process ended ({ended.signal}): {said[-300:]}")
    raise WorkerFailed(f"The GPU's process ended ({ended.reason}, {ended.signal or ended.returncode}); it said: {said}")


def _reason(stage: str, message: str) -> Rejection:
    first = next((line.strip() for line in message.splitlines() if line.strip()), "no message")[:400]
    if "RESOURCE_EXHAUSTED" in message and "shared memory" in message.lower():
        return Rejection(reason="shared_memory", message=first)
    if "RESOURCE_EXHAUSTED" in message or "out of memory" in message.lower():
        return Rejection(reason="run_memory", message=first)
    if "CUPTI" in message:
        raise TimerUnavailable(f"{first}. Time with the wall clock (--set timer.name=wall), or mend CUPTI.")
    if stage == "compile":
        if message.startswith("the XLA baseline"):
            raise WorkerFailed(f"{first}. It is our program, not the candidate's.")
        if "did not alias the poisoned argument" in message:
            raise WorkerFailed(
                "XLA did not alias the poisoned argument to the output; this JAX version needs a change."
            )
        return Rejection(reason="compile_error", message=first)
    if any(word in message for word in _FAULTS) or "CUDA_ERROR" in message or "INTERNAL" in message:
        return Rejection(
            reason="device_fault",
            message=f"The GPU reported an error while the kernel ran: {first} Mask accesses past the edges.",
        )
    raise WorkerFailed(f"The GPU's process failed at `{stage}`: {first}")
