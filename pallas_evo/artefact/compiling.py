"""Offline compiling, from the parent's side: what Triton and ptxas make of an artefact, with no GPU and a deadline."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import MutableMapping, Sequence
from importlib.util import find_spec

from pallas_evo.artefact import wire
from pallas_evo.artefact.architectures import ARCHITECTURES
from pallas_evo.artefact.at_hand import AUTO, resolve
from pallas_evo.artefact.refusal import clean
from pallas_evo.errors import ConfigError, WorkerFailed
from pallas_evo.jail import Ended, Worker, WorkerLimits
from pallas_evo.types import Artefact, Compiled, Rejection

_MODULE = "pallas_evo.artefact.compile_child"


def compile_offline(artefact: Artefact, sm: str, deadline_s: float) -> Compiled | Rejection | None:
    """All kernels of one artefact for one architecture, the largest of each figure.

    Args:
        sm: a key of ARCHITECTURES, `"sm_80"` for the A100.
        deadline_s: for the whole artefact; the child is killed past it.

    Returns:
        None where the `ptx` extra is not installed, or its Triton cannot read what JAX's Triton printed.
    """
    return compile_offline_many([artefact], [sm], deadline_s)[0][sm]


def start_compiler(*, warm: bool = False) -> Worker | None:
    """A compiling child that is coming up, or None without the `ptx` extra; `warm` if it will wait for its job."""
    if find_spec("triton") is None:
        return None
    limits = WorkerLimits(
        memory_bytes=16 << 30, cpu_s=None, file_bytes=256 << 20, scratch_bytes=512 << 20, open_files=1024
    )
    return Worker(_MODULE, limits=limits, jailed=False, env={"PALLAS_EVO_WARM": "1"} if warm else None)


def compile_offline_many(
    artefacts: Sequence[Artefact],
    sms: Sequence[str],
    deadline_s: float,
    *,
    worker: Worker | None = None,
    ptx: MutableMapping[tuple[str, str], tuple[str, ...]] | None = None,
) -> list[dict[str, Compiled | Rejection | None]]:
    """Several artefacts for several architectures, in one child as long as it lives.

    Args:
        sms: keys of ARCHITECTURES, and `auto` for the GPU's at hand, which is left out where there is none.
        deadline_s: for each artefact and architecture.
        worker: a child from `start_compiler`; it is used up.
        ptx: where given, takes in the text of each distinct kernel of what compiled, by (size, architecture).

    Returns:
        For each artefact, by architecture, what `compile_offline` gives.

    Raises:
        ConfigError: an architecture that is not known.
        WorkerFailed: the child could not start, or gave an answer that our code does not give.
    """
    for sm in sms:
        if sm not in (AUTO, *ARCHITECTURES):
            raise ConfigError(
                f"compile.architectures: {sm} is not known; choose from {AUTO}, {', '.join(ARCHITECTURES)}."
            )
    sms = resolve(sms)
    results: list[dict[str, Compiled | Rejection | None]] = [{} for _ in artefacts]
    if worker is None and find_spec("triton") is None:
        return [dict.fromkeys(sms) for _ in artefacts]
    try:
        for artefact, result in zip(artefacts, results, strict=True):
            for sm in sms:
                worker = worker or start_compiler()
                if worker is None:
                    raise WorkerFailed("triton disappeared while compiling; install the `ptx` extra again.")
                worker.ready()
                worker.send(_job(artefact, sm, with_ptx=ptx is not None), deadline_s)
                answer = worker.receive(deadline_s, wire.ANSWER_BYTES)
                if isinstance(answer, Ended):
                    worker.kill()
                    worker = None
                    result[sm] = _lost(answer, sm, deadline_s)
                elif answer == b'"unreadable"':
                    result[sm] = None
                else:
                    try:
                        result[sm], texts = wire.read_compiled(answer, sm)
                    except wire.BadAnswer as error:
                        raise WorkerFailed(f"{_MODULE}: an answer that our code does not give ({error}).") from error
                    if ptx is not None and texts:
                        ptx[artefact.workload.label, sm] = texts
    finally:
        if worker is not None:
            worker.kill()
    return results


def _job(artefact: Artefact, sm: str, *, with_ptx: bool) -> bytes:
    distinct = {(kernel.ttir, kernel.num_warps, kernel.num_stages): kernel for kernel in artefact.kernels}
    kernels = [dataclasses.asdict(kernel) for kernel in distinct.values()]
    return json.dumps({"sm": sm, "kernels": kernels, "with_ptx": with_ptx}).encode()


def _lost(ended: Ended, sm: str, deadline_s: float) -> Rejection:
    if ended.reason == "timeout":
        return Rejection(
            reason="compile_timeout",
            message=f"Triton and ptxas did not compile the kernels for {sm} in {deadline_s:g} s; use smaller blocks, "
            "fewer num_stages, and lax.fori_loop in place of unrolled Python loops.",
        )
    how = ended.signal or f"exit code {ended.returncode}"
    return Rejection(
        reason="compile_error",
        message=clean(
            f"Triton ended while it compiled the kernels for {sm} ({ended.reason}, {how}); it has no message for that. "
            "Use smaller blocks, and dimensions of at least 16 in jnp.dot.",
            300,
        ),
    )
