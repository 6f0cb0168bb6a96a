"""`validate_jailed`: the validator in a confined child that may crash or hang without harm."""

from __future__ import annotations

from collections.abc import Sequence

from pallas_evo.artefact import wire
from pallas_evo.artefact.refusal import clean
from pallas_evo.config import ArtefactLimits
from pallas_evo.errors import WorkerFailed
from pallas_evo.jail import Ended, Nursery, Worker, WorkerLimits
from pallas_evo.types import Artefact, Rejection, Workload

CHILD = "pallas_evo.artefact.child"


def start_validator(limits: ArtefactLimits, *, allow_unjailed: bool = False, nursery: Nursery | None = None) -> Worker:
    """A validating child that is coming up: hand it to `validate_jailed` to hide its start behind other work."""
    return Worker(
        CHILD,
        limits=WorkerLimits(memory_bytes=limits.memory_bytes, cpu_s=None),
        allow_unjailed=allow_unjailed,
        nursery=nursery,
    )


def validate_jailed(
    jobs: Sequence[tuple[bytes, Workload]],
    limits: ArtefactLimits,
    *,
    allow_unjailed: bool = False,
    worker: Worker | None = None,
) -> list[Artefact | Rejection]:
    """Judge exported programs, each a module and the workload whose types it must have.

    One child serves all of them; a program that crashes or hangs it costs its own verdict and a fresh child for the
    rest. `limits.deadline_s` is for each program.

    Args:
        worker: a child from `start_validator`; it is used up. Without one, one is started.

    Raises:
        JailUnavailable: nothing here can confine a process, and `allow_unjailed` is off.
        WorkerFailed: a child could not start, or gave an answer that our code does not give.
    """
    results: list[Artefact | Rejection] = []
    try:
        for module, workload in jobs:
            if worker is None:
                worker = start_validator(limits, allow_unjailed=allow_unjailed)
            worker.ready()
            worker.send(wire.job(module, workload, limits), limits.deadline_s)
            answer = worker.receive(limits.deadline_s, wire.ANSWER_BYTES)
            if isinstance(answer, Ended):
                worker.kill()
                worker = None
                results.append(_lost(answer, limits))
                continue
            try:
                results.append(wire.read_verdict(answer, workload, limits))
            except wire.BadAnswer as error:
                raise WorkerFailed(f"{CHILD}: an answer that our code does not give ({error}).") from error
    finally:
        if worker is not None:
            worker.kill()
    return results


def _lost(ended: Ended, limits: ArtefactLimits) -> Rejection:
    """The child ended on this program: the parser's crash or hang is the program's doing."""
    if ended.reason == "timeout":
        return Rejection(
            reason="timeout",
            message=f"Reading the exported program took over {limits.deadline_s:g} s; make the kernels smaller, with "
            "loops in place of unrolling.",
        )
    how = ended.signal or f"exit code {ended.returncode}"
    return Rejection(
        reason="malformed",
        message=clean(
            f"Reading the exported program ended the validator ({ended.reason}, {how}): it is not a program that JAX "
            "writes.",
            200,
        ),
    )
