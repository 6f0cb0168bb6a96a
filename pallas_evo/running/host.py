"""C without a GPU, the parent's side: a jailed process that runs a candidate's validated programs in the executor."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import numpy as np

from pallas_evo.config import RunLimits
from pallas_evo.errors import UnknownOperation, WorkerFailed
from pallas_evo.jail import Ended, Nursery, Worker, WorkerLimits
from pallas_evo.running import wire
from pallas_evo.types import Artefact, Counts, Rejection

CHILD = "pallas_evo.running.child"
HEADER_BYTES = 1 << 20


class HostRunner:
    """One executor process for one candidate. Starting does not wait; use it as a context manager.

    `device` is what an evaluation's `ran_on` says.
    """

    device = "cpu"

    def __init__(self, limits: RunLimits, *, allow_unjailed: bool = False, nursery: Nursery | None = None) -> None:
        self.limits = limits
        self._worker = Worker(
            CHILD,
            limits=WorkerLimits(memory_bytes=limits.memory_bytes, cpu_s=None),
            allow_unjailed=allow_unjailed,
            readable=("pallas_evo.running",),
            nursery=nursery,
        )

    def run(
        self, artefact: Artefact, inputs: Sequence[np.ndarray], *, deadline_s: float | None = None
    ) -> tuple[np.ndarray, Counts, float] | Rejection:
        """Run one program once: its output, what it did, and the executor's own seconds.

        Raises:
            UnknownOperation: the executor cannot run something that the validator allows.
            WorkerFailed: the process ended, and not by a limit of the candidate's.
        """
        output = artefact.workload.output
        request = {
            "module": artefact.module,
            "output": {"shape": list(output.shape), "dtype": output.dtype},
            "lane_elements": self.limits.lane_elements,
        }
        deadline_s = deadline_s or self.limits.deadline_s
        self._worker.ready()
        self._worker.send(wire.pack(request, inputs), deadline_s)
        size = int(np.prod(output.shape, dtype=object)) * np.dtype(output.dtype).itemsize
        answer = self._worker.receive(deadline_s, size + HEADER_BYTES)
        if isinstance(answer, Ended):
            return _why(answer, deadline_s)
        header, arrays = wire.unpack(answer)
        if header["status"] == "unknown_operation":
            raise UnknownOperation(header["message"])
        if header["status"] == "rejected":
            return Rejection(reason=header["reason"], message=header["message"])
        if len(arrays) != 1 or arrays[0].shape != output.shape or arrays[0].dtype.name != output.dtype:
            raise WorkerFailed(f"The executor answered with {header}, not with an output of {output}.")
        return arrays[0], Counts(**header["counts"]), float(header["seconds"])

    @property
    def alive(self) -> bool:
        """Whether the process is there, up or still coming up."""
        return self._worker.alive

    def stop(self) -> None:
        """End the process from another thread than the one that waits for it, which gets a Rejection."""
        self._worker.interrupt()

    def kill(self) -> None:
        """End the process."""
        self._worker.kill()

    def __enter__(self) -> HostRunner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()


def _why(ended: Ended, deadline_s: float) -> Rejection:
    if ended.reason == "timeout" or ended.interrupted:
        return Rejection(
            reason="endless",
            message=f"The kernel did not end within {deadline_s:g} s. Look for a loop whose bound never comes.",
        )
    if "MemoryError" in ended.output_text or ended.signal == "SIGKILL":
        return Rejection(
            reason="run_memory",
            message="The program needs more memory than the runner has: use smaller blocks or fewer temporaries.",
        )
    raise WorkerFailed(
        f"The executor's process ended ({ended.reason}, {ended.signal or ended.returncode}); it said: "
        f"{ended.output_text[-2000:].strip() or 'nothing'}"
    )
