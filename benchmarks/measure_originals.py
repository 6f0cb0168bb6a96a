"""What the GPU gates say to each TPU original with Triton forced, at medium: writes seeds/tpu/findings.json.

    python benchmarks/measure_originals.py [--only ID ...] [--deadline SECONDS] [--out FILE]

It needs no GPU, but the ptx extra, and takes several minutes: a block of a million elements keeps the compiler busy
until the deadline. `python -m pallas_evo.seed` stores what is written here; it measures none of it again.

Shared memory is read after Triton's own allocation pass, before LLVM: the kernels that want megabytes of it are also
those that LLVM does not end on, and the shorter answer is the more useful one. Nothing here is a time on a GPU, so
`slow` is null.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import multiprocessing
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pallas_evo.artefact import compile_offline, validate_jailed
from pallas_evo.artefact.architectures import ARCHITECTURES
from pallas_evo.artefact.compile_child import for_release
from pallas_evo.config import ArtefactLimits, TraceLimits
from pallas_evo.paths import SEEDS, original_file
from pallas_evo.tasks import dims_of, get_task, load_tasks, workload
from pallas_evo.tracing import trace_original
from pallas_evo.types import Artefact, Compiled, Kernel, Rejection, Task

SM = "sm_80"
SIZE = "medium"
SHARED_DEADLINE_S = 60.0


def shared_bytes(kernel: Kernel) -> int:
    """Shared memory that Triton allocates for a kernel, without the LLVM stage."""
    from triton._C.libtriton import ir, nvidia, passes
    from triton.backends.compiler import GPUTarget, Language
    from triton.backends.nvidia.compiler import CUDABackend

    backend = CUDABackend(GPUTarget("cuda", ARCHITECTURES[SM].capability, 32))
    options = backend.parse_options({"num_warps": kernel.num_warps, "num_stages": kernel.num_stages, "arch": "sm80"})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.ttir")
        file.write_text(for_release(kernel.ttir))
        module = ir.parse_mlir_module(str(file), context)
    module.context = context
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language.TRITON)
    metadata: dict[str, Any] = {}
    module = stages["ttgir"](stages["ttir"](module, metadata), metadata)
    manager = ir.pass_manager(context)
    passes.ttgpuir.add_allocate_warp_groups(manager)
    passes.convert.add_scf_to_cf(manager)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(
        manager, ARCHITECTURES[SM].capability, options.ptx_version or ARCHITECTURES[SM].capability
    )
    manager.run(module, "shared")
    return int(module.get_int_attr("ttg.shared"))


def _most_shared(kernels: tuple[Kernel, ...], answer: Any) -> None:
    answer.send(max(shared_bytes(kernel) for kernel in kernels))


def shared_within(kernels: tuple[Kernel, ...], deadline_s: float) -> int | None:
    """The most that any kernel wants, or None where Triton did not say in time."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_most_shared, args=(kernels, theirs))
    child.start()
    theirs.close()
    try:
        return int(ours.recv()) if ours.poll(deadline_s) else None
    except EOFError:
        return None
    finally:
        child.kill()
        child.join()


def finding(task: Task, source: str, deadline_s: float) -> tuple[str, str, dict[str, Any]]:
    """Reason, sentence, and figures: the first gate that says no, or `compiles`."""
    size = workload(task, dims_of(task, SIZE), SIZE)
    details: dict[str, Any] = {"size": SIZE, "stage": "trace", "sm": None, "shared_bytes": None, "slow": None}
    traced = trace_original(source, task, [size], TraceLimits())
    if isinstance(traced, Rejection):
        return traced.reason, traced.message, details
    (artefact,) = validate_jailed([(traced.modules[0], size)], ArtefactLimits())
    if isinstance(artefact, Rejection):
        return artefact.reason, artefact.message, {**details, "stage": "validate"}
    return _compiled(artefact, deadline_s, {**details, "stage": "compile", "sm": SM})


def _compiled(artefact: Artefact, deadline_s: float, details: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    limit = ARCHITECTURES[SM].shared_block_bytes
    shared = shared_within(artefact.kernels, SHARED_DEADLINE_S)
    details["shared_bytes"] = shared
    if shared is not None and shared > limit:
        message = (
            f"A kernel wants {shared:,} bytes of shared memory, and {SM} has {limit:,} for a block: operands of a dot "
            "lie there whole. Walk the contracted axis in blocks of 32 to 64."
        )
        return "shared_memory", message, details
    done = compile_offline(artefact, SM, deadline_s)
    if done is None:
        sys.exit("triton is missing, or does not read what this JAX prints: install the ptx extra and run again.")
    details["deadline_s"] = deadline_s
    if isinstance(done, Compiled):
        details |= {"registers": done.registers, "spill_bytes": done.spill_bytes, "seconds": done.seconds}
        spilled = f"{done.spill_bytes:,} bytes spilled" if done.spill_bytes else "nothing spilled"
        message = (
            f"It compiles for {SM} in {done.seconds:.1f} s: {done.registers} registers a thread, {spilled}, "
            f"{done.shared_bytes:,} bytes of shared memory. How fast it is, only a GPU can tell."
        )
        return "compiles", message, details
    return done.reason, done.message, details


def main() -> None:
    """Measure, one original after another, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="ID", help="these tasks; the rest of FILE is kept")
    parser.add_argument("--deadline", type=float, default=30.0, metavar="SECONDS", help="of one compilation (30)")
    parser.add_argument("--out", type=Path, default=SEEDS / "tpu" / "findings.json", metavar="FILE")
    arguments = parser.parse_args()
    tasks = [get_task(id) for id in arguments.only] or list(load_tasks())
    findings: dict[str, Any] = {}
    if arguments.only and arguments.out.exists():
        findings = json.loads(arguments.out.read_text(encoding="utf-8"))["findings"]
    environment = {
        **{name: version(name) for name in ("jax", "jaxlib", "triton")},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "gpu": None,
        "measured_on": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "measured_by": "benchmarks/measure_originals.py",
    }
    for task in tasks:
        source = original_file(task.id).read_bytes()
        reason, message, details = finding(task, source.decode(), arguments.deadline)
        findings[task.id] = {
            "reason": reason,
            "message": message,
            "source_sha256": hashlib.sha256(source).hexdigest(),
            "details": details,
        }
        print(f"{task.id}: {reason}: {message}", flush=True)
        ordered = {one.id: findings[one.id] for one in load_tasks() if one.id in findings}
        written = json.dumps({"environment": environment, "findings": ordered}, indent=1, ensure_ascii=False) + "\n"
        temporary = arguments.out.with_suffix(".tmp")
        temporary.write_text(written, encoding="utf-8")
        temporary.replace(arguments.out)


if __name__ == "__main__":
    main()
