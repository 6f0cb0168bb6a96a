"""A task, sources and evaluations for the archive's tests, every field filled with something that can be lost."""

from __future__ import annotations

import dataclasses
from typing import Any

from pallas_evo.archive import sha256_of_text
from pallas_evo.types import Compiled, Dim, Evaluation, FilterResult, GateResult, InputSpec, SizeResult, Stress, Task

TASK = Task(
    id="L1/relu",
    number=1,
    level=1,
    category="activation",
    inputs=(InputSpec(name="x", dtype="float32", law="normal", shape=("M", 4)),),
    output_shape=("M", "N-M+1"),
    output_dtype="float32",
    dims={"M": Dim(name="M", min=1, max=9, small=2, medium=3, large=4)},
    formula="max(x, 0)",
    precision="exact",
    note="a note",
    stress=Stress(text="wide", inputs=("x",), uniform=(0.0, 1.5)),
)
OTHER_TASK = dataclasses.replace(TASK, id="L2/fused_relu", number=28, level=2, stress=None)

PARENT = "BLOCK_M = 32\n"
CHILD = "BLOCK_M = 64\n"


def evaluation(source: str = PARENT, **changes: Any) -> Evaluation:
    """An accepted, timed evaluation of the source."""
    return dataclasses.replace(
        Evaluation(
            task=TASK.id,
            task_version=1,
            target="cuda",
            correct=True,
            combined_score=1.25,
            status="accepted",
            stage=None,
            reason=None,
            message="",
            gates=(
                GateResult(name="contract", passed=True, reason=None, message="", seconds=0.001),
                GateResult(
                    name="numerics", passed=False, reason="numerics", message="4.2 times the bound", seconds=0.1
                ),
            ),
            filters={
                "output_std": FilterResult(passed=True, value=0.1 + 0.2, threshold=0.02, message="fine"),
                "output_range": FilterResult(passed=False, value=float("inf"), threshold=None, message="not finite"),
            },
            sizes={
                "small": SizeResult(shape=((2, 4),), correct=True, normwise_error=1e-300, bound=2e-6),
                "medium": SizeResult(
                    shape=((3, 4), (5,)),
                    correct=True,
                    normwise_error=2.9e-4,
                    bound=1e-3,
                    median_us=33.3,
                    xla_us=32.1,
                    floor_us=15.6,
                    roofline_percent=46.8,
                    samples_us=(33.3, 0.1 + 0.2, 1e-9),
                ),
            },
            compiled={
                "sm_80": Compiled(
                    sm="sm_80",
                    registers=32,
                    spill_bytes=0,
                    shared_bytes=1024,
                    occupancy=0.5,
                    ptx_bytes=9000,
                    seconds=0.3,
                )
            },
            ran_on="NVIDIA H200",
            compiled_for=("sm_80", "sm_90"),
            jail="landlock+seccomp",
            seeds={"small-0": 2**127 + 1, "variant": 0},
            candidate_sha256=sha256_of_text(source),
            duration_s=0.35,
            timer="cupti",
            text_feedback="Use wider blocks.",
            output_text="printed \0 by a \udc80 candidate \u2028 é",
            environment={"jax": "0.10.2", "triton": None, "driver": "575", "devices": ["H200"], "jail": {"level": 2}},
            texts_size="medium",
            texts={
                "jaxpr": "{ made \0 up \udc80 by a candidate \u2028 é }",
                "stablehlo": "module {}\n",
                "triton_ir": "",
            },
        ),
        **changes,
    )


def rejected(source: str = PARENT, **changes: Any) -> Evaluation:
    """A rejected evaluation of the source, never timed."""
    verdict = {"correct": False, "combined_score": 0.0, "status": "rejected", "stage": "trace", "reason": "timeout"}
    nothing = {"gates": (), "filters": {}, "sizes": {}, "compiled": {}, "compiled_for": (), "ran_on": None}
    nothing |= {"texts": {}, "texts_size": None}
    return evaluation(source, **{**verdict, **nothing, "message": "too slow", "timer": "untimed", **changes})


def untimed(source: str = PARENT, **changes: Any) -> Evaluation:
    """A correct evaluation made without a GPU."""
    sizes = {"small": SizeResult(shape=((2, 4),), correct=True, normwise_error=0.0, bound=2e-6)}
    return evaluation(
        source,
        **{"target": "cpu", "ran_on": "executor", "timer": "untimed", "combined_score": 1.0, "sizes": sizes, **changes},
    )
