"""C on a GPU, the parent's side: one process for one candidate, killed whole when it hangs or faults."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from pallas_evo.config import RunLimits
from pallas_evo.errors import DeviceUnavailable, WorkerFailed
from pallas_evo.jail import Ended, Worker, WorkerLimits, printable
from pallas_evo.running import wire
from pallas_evo.running.lease import lease
from pallas_evo.types import Artefact, Rejection

CHILD = "pallas_evo.running.device_child"
START_S = 120.0
COMPILE_S = 60.0
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


def gpu_present() -> bool:
    """Whether this machine has an NVIDIA GPU's device file; starts nothing."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    return hidden not in ("", "-1") and any(Path("/dev").glob("nvidia[0-9]*"))


def driver_version() -> str | None:
    """The NVIDIA kernel driver's version, or None."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return None
    return next((word for word in words if word.replace(".", "").isdigit() and word.count(".") >= 1), None)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Raw samples in us of a program and of the XLA baseline, by the named timer and by the wall clock.

    `outputs` are those of the timed calls that were kept, in order; `kernels` counts the launches of one call.
    """

    timer: str
    candidate_us: tuple[float, ...]
    baseline_us: tuple[float, ...]
    wall_candidate_us: tuple[float, ...]
    wall_baseline_us: tuple[float, ...]
    kernels: dict[str, int]
    outputs: tuple[np.ndarray, ...]


class DeviceRunner:
    """One GPU process for one candidate. Starting does not wait; use it as a context manager."""

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self._device: str | None = None
        self._compiled: set[str] = set()
        self._dead: Rejection | None = None
        environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
        self._worker = Worker(
            CHILD,
            limits=WorkerLimits(
                memory_bytes=None,
                cpu_s=None,
                file_bytes=1 << 30,
                scratch_bytes=1 << 30,
                open_files=None,
                processes=None,
            ),
            jailed=False,  # it runs none of the candidate's Python, and CUDA starts threads and helper processes
            env={
                **environment,
                "JAX_PLATFORMS": "cuda",
                "CUDA_VISIBLE_DEVICES": environment.get("CUDA_VISIBLE_DEVICES", "0"),
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            },
        )

    @property
    def device(self) -> str:
        """The GPU's name as JAX gives it; waits for the process to come up.

        Raises:
            DeviceUnavailable: the process found no GPU.
        """
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

    def compile(self, artefact: Artefact) -> float | Rejection:
        """Compile one program by XLA, under its workload's label; the seconds that it took."""
        workload = artefact.workload
        answer = self._share(
            {
                "op": "compile",
                "label": workload.label,
                "module": artefact.module,
                "inputs": [[list(spec.shape), spec.dtype] for spec in workload.inputs],
                "output": [list(workload.output.shape), workload.output.dtype],
            },
            (),
            COMPILE_S,
            0,
        )
        if isinstance(answer, Rejection):
            return answer
        self._compiled.add(workload.label)
        return float(answer[0]["seconds"])

    def run(
        self, artefact: Artefact, inputs: Sequence[np.ndarray], *, deadline_s: float | None = None
    ) -> tuple[np.ndarray, None, float] | Rejection:
        """Run one program twice over poisoned memory: its output and the host's seconds for the second call.

        Raises:
            DeviceUnavailable, WorkerFailed: ours.
        """
        label, output = artefact.workload.label, artefact.workload.output
        if label not in self._compiled:
            compiled = self.compile(artefact)
            if isinstance(compiled, Rejection):
                return compiled
        size = int(np.prod(output.shape, dtype=object)) * np.dtype(output.dtype).itemsize
        answer = self._share({"op": "run", "label": label}, inputs, deadline_s or self.limits.device_deadline_s, size)
        if isinstance(answer, Rejection):
            return answer
        header, arrays = answer
        if not header["unchanged"]:
            return Rejection(
                reason="input_mutated", message="An input was different after the run: a kernel wrote to it."
            )
        if not header["agree"]:
            return Rejection(
                reason="nondeterministic",
                message="Two runs on the same inputs gave different outputs: elements are never written, or depend on "
                "the order of programs.",
            )
        if len(arrays) != 1 or arrays[0].shape != output.shape or arrays[0].dtype.name != output.dtype:
            raise WorkerFailed(f"The GPU's process answered with {header}, not with an output of {output}.")
        return arrays[0], None, float(header["seconds"])

    def time(
        self,
        artefact: Artefact,
        inputs: Sequence[Sequence[np.ndarray]],
        baseline_inputs: Sequence[Sequence[np.ndarray]],
        timer: str,
        keep: Sequence[int],
    ) -> Timed | Rejection:
        """Time a program that has run, against the task's XLA baseline; hold the GPU's lease around it.

        Args:
            artefact: the program.
            inputs: an input set for each timed call, none of which the GPU has seen.
            baseline_inputs: other input sets, used in turn for the baseline.
            timer: a name of running.timers.TIMERS.
            keep: which of the timed calls' outputs come back, by their place; the program cannot know.

        Raises:
            DeviceUnavailable, WorkerFailed: ours, a timer that is not there for one.
        """
        label, output = artefact.workload.label, artefact.workload.output
        size = int(np.prod(output.shape, dtype=object)) * np.dtype(output.dtype).itemsize * len(keep)
        request: dict[str, object] = {
            "op": "time",
            "label": label,
            "task": artefact.workload.task_id,
            "repeats": len(inputs),
            "timer": timer,
            "keep": list(keep),
        }
        arrays = [array for one in (*inputs, *baseline_inputs) for array in one]
        answer = self._ask(request, arrays, self.limits.deadline_s, size)
        if isinstance(answer, Rejection):
            return answer
        said, outputs = answer
        if len(outputs) != len(keep) or any(one.shape != output.shape for one in outputs):
            raise WorkerFailed(f"The GPU's process answered with {said}, not with {len(keep)} outputs of {output}.")

        def samples(name: str) -> tuple[float, ...]:
            return tuple(float(sample) for sample in said[name])

        return Timed(
            timer=str(said["timer"]),
            candidate_us=samples("candidate_us"),
            baseline_us=samples("baseline_us"),
            wall_candidate_us=samples("wall_candidate_us"),
            wall_baseline_us=samples("wall_baseline_us"),
            kernels=dict(said["kernels"]),
            outputs=tuple(outputs),
        )

    def _share(
        self, header: dict[str, object], arrays: Sequence[np.ndarray], deadline_s: float, output_bytes: int
    ) -> tuple[dict[str, Any], list[np.ndarray]] | Rejection:
        """Ask beside others that use the GPU, but never beside one who times."""
        _ = self.device
        with lease(shared=True):
            return self._ask(header, arrays, deadline_s, output_bytes)

    def _ask(
        self, header: dict[str, object], arrays: Sequence[np.ndarray], deadline_s: float, output_bytes: int
    ) -> tuple[dict[str, Any], list[np.ndarray]] | Rejection:
        if self._dead is not None:
            return self._dead
        _ = self.device
        self._worker.send(wire.pack(header, arrays), deadline_s)
        answer = self._worker.receive(deadline_s, output_bytes + HEADER_BYTES)
        if isinstance(answer, Ended):
            self._dead = _why(answer, str(header["op"]), deadline_s)
            return self._dead
        said, found = wire.unpack(answer)
        if said["status"] != "error":
            return said, found
        self._dead = _reason(str(said["stage"]), printable(str(said["message"])))
        return self._dead

    def kill(self) -> None:
        """End the process; the GPU is free a moment later."""
        self._worker.kill()

    def __enter__(self) -> DeviceRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()


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
        raise DeviceUnavailable(f"{first}. Time with the wall clock (--set timer.name=wall), or mend CUPTI.")
    if stage == "compile":
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
