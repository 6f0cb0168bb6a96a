"""The killable child that compiles Triton IR with the `ptx` extra: jobs in, a `Compiled` or a reason out.

Not jailed, because Triton starts ptxas; it gets only text that the validator printed, an environment of ours and a
scratch folder, and Triton's cache is a fresh folder for every job.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget

from pallas_evo.artefact import wire
from pallas_evo.artefact.architectures import ARCHITECTURES, Architecture, occupancy
from pallas_evo.artefact.refusal import Refused, clean
from pallas_evo.types import Compiled, Rejection

if TYPE_CHECKING:
    from pallas_evo.jail.frames import Channel

UNREADABLE = b'"unreadable"'
"""The answer where this Triton cannot read the IR that JAX's Triton printed: a gap between versions, nobody's fault."""


_FIRST = """
module {
  tt.func public @first(%arg0: !tt.ptr<f32> {tt.divisibility = 16 : i32}) {
    %0 = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
    %1 = tt.splat %arg0 : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %2 = tt.addptr %1, %0 : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %3 = tt.load %2 : tensor<128x!tt.ptr<f32>>
    tt.store %2, %3 : tensor<128x!tt.ptr<f32>>
    tt.return
  }
}
"""


def main(channel: Channel) -> None:
    """Answer jobs until the parent closes its end."""
    knobs.nvidia.dump_ptxas_log = True
    knobs.compilation.disable_line_info = True  # it names our scratch folder, in text and in debug sections
    # The first compile costs 0.4 s of loading, which a process that waits for its candidate does meanwhile.
    with contextlib.suppress(Refused, _Unreadable):
        if "PALLAS_EVO_WARM" in os.environ:
            _compile({"name": "first", "ttir": _FIRST, "num_warps": 4, "num_stages": 2}, ARCHITECTURES["sm_80"])
    while (frame := channel.receive()) is not None:
        job = json.loads(frame)
        try:
            ptx: list[str] = []
            answer = wire.verdict(compile_kernels(job["kernels"], job["sm"], ptx), ptx if job["with_ptx"] else ())
        except _Unreadable:
            answer = UNREADABLE
        except Refused as refused:
            answer = wire.verdict(refused.rejection())
        channel.send(answer)


class _Unreadable(Exception):
    """Triton's parser does not know something in the IR."""


def compile_kernels(kernels: list[dict[str, Any]], sm: str, ptx: list[str]) -> Compiled | Rejection:
    """The largest of each figure over all kernels, and the lowest occupancy. Each kernel's PTX is added to `ptx`."""
    architecture = ARCHITECTURES[sm]
    started = time.perf_counter()
    registers = spills = shared = ptx_bytes = 0
    lowest = 1.0
    for kernel in kernels:
        figures, text = _compile(kernel, architecture)
        ptx.append(text)
        if figures["shared"] > architecture.shared_block_bytes:
            raise Refused(
                "shared_memory",
                f"Kernel {kernel['name']} needs {figures['shared']} bytes of shared memory with "
                f"num_stages={kernel['num_stages']}; "
                f"{sm} has {architecture.shared_block_bytes} for a block. Shrink the block sizes of the operands of "
                "jnp.dot "
                "and of reductions, or lower num_stages: each stage holds one more copy of the tiles loaded in a loop.",
            )
        registers, spills = max(registers, figures["registers"]), max(spills, figures["spills"])
        shared, ptx_bytes = max(shared, figures["shared"]), max(ptx_bytes, figures["ptx"])
        lowest = min(lowest, occupancy(architecture, figures["registers"], figures["shared"], kernel["num_warps"]))
    return Compiled(
        sm=sm,
        registers=registers,
        spill_bytes=spills,
        shared_bytes=shared,
        occupancy=lowest,
        ptx_bytes=ptx_bytes,
        seconds=round(time.perf_counter() - started, 4),
    )


def _compile(kernel: dict[str, Any], architecture: Architecture) -> tuple[dict[str, int], str]:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ttir")
        source.write_text(for_release(kernel["ttir"]))
        knobs.cache.dir = str(Path(folder, "cache"))
        said = io.StringIO()
        diagnostics = Path(folder, "diagnostics")
        try:
            with _stderr_to(diagnostics), contextlib.redirect_stdout(said):
                done = triton.compile(
                    str(source),
                    target=GPUTarget("cuda", architecture.capability, 32),
                    options={"num_warps": kernel["num_warps"], "num_stages": kernel["num_stages"]},
                )
        except Exception as error:
            # Whatever Triton raises on a kernel is what it has to say about that kernel.
            heard = diagnostics.read_text(errors="replace") if diagnostics.exists() else ""
            if "Parse MLIR file failed" in str(error):
                raise _Unreadable from error
            raise Refused("compile_error", _sentence(kernel["name"], architecture, error, heard)) from error
        log = said.getvalue()
    used = re.search(r"Used (\d+) registers", log)
    if used is None:
        raise Refused("compile_error", f"ptxas did not say how many registers kernel {kernel['name']} uses.")
    ptx = str(done.asm["ptx"])
    return {
        "registers": int(used.group(1)),
        "spills": sum(int(count) for count in re.findall(r"(\d+) bytes spill (?:stores|loads)", log)),
        "shared": int(done.metadata.shared),
        "ptx": len(ptx),
    }, ptx


_CACHE_POLICY = re.compile(
    r" \{cachePolicy = #tt\.cache_policy<cache_modifier = (\w+), eviction_policy = (\w+)>(?:, ([^{}]*))?\}"
)


def for_release(ttir: str) -> str:
    """The IR as the released Triton reads it: JAX 0.12's holds both cache hints in one attribute, the release in "
    "two."""

    def split(found: re.Match[str]) -> str:
        modifier, policy, rest = found.groups()
        text = "" if modifier == "none" else f" cacheModifier = {modifier}"
        text += "" if policy == "normal" else f" evictionPolicy = {policy}"
        return text + (f" {{{rest}}}" if rest else "")

    return _CACHE_POLICY.sub(split, ttir)


@contextlib.contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """MLIR writes its diagnostics to the process's descriptor 2."""
    kept = os.dup(2)
    target = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.dup2(target, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


_DULL = ("PassManager::run failed", "Repro command", "Ptx assembly aborted", "`ptxas` failed", "ptxas stderr")


def _sentence(name: str, architecture: Architecture, error: Exception, heard: str) -> str:
    """The last line that says something, from ptxas or MLIR, after a sentence of ours."""
    lines = [line.strip() for line in f"{heard}\n{error}".splitlines()]
    telling = [line for line in lines if re.search(r"\b(error|fatal|failed|not supported|assert)", line, re.I)]
    said = [line for line in telling if not any(dull in line for dull in _DULL)]
    last = clean((said or telling or [""])[-1], 250)
    where = re.sub(r"\S*/(\S+:\d+)", r"\1", last)  # no path of this machine
    start = f"Triton could not compile kernel {name} for sm_{architecture.capability}"
    if not where or where == "PassManager::run failed":
        return (
            f"{start} and did not say why. Try power-of-two blocks of at least 16 in each dimension of jnp.dot, and "
            "fewer num_warps."
        )
    return f"{start}: {where}"
