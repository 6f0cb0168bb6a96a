"""An archive with one of everything that a dataset must not lose; nothing in it was measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from pallas_evo.archive import Archive, open_archive, sha256_of_text
from pallas_evo.paths import original_file, seed_file
from pallas_evo.tasks import get_task, load_tasks
from pallas_evo.types import Compiled, Evaluation, FilterResult, GateResult, SizeResult

RELU, SWIGLU = "L1/relu", "L2/swiglu"
SEED = seed_file(RELU).read_text(encoding="utf-8")
ORIGINAL = original_file(RELU).read_text(encoding="utf-8")
CHILD = SEED.replace("BLOCK_M = 16", "BLOCK_M = 32")
GRANDCHILD = SEED.replace("BLOCK_M = 16", "BLOCK_M = 64")
HOSTILE = "# by hand, no licence\x00 \udc80 \u2028 \u202e é </script> | `x`\r\n"
TEXTS = {
    "jaxpr": "{ a:f32[2] }\x00\u2028",
    "stablehlo": "module {}\n",
    "triton_ir": "tt.func\n",
    "ptx_sm_80": "// ptx\n",
}


def timed(source: str, median_us: float = 40.0, **changes: Any) -> Evaluation:
    """A correct verdict with times at medium and large."""
    size = SizeResult(shape=((512, 512),), correct=True, normwise_error=1e-9, bound=2e-6)
    medium = dataclasses.replace(
        size,
        normwise_error=3e-8,
        median_us=median_us,
        xla_us=50.0,
        floor_us=20.0,
        roofline_percent=2000.0 / median_us,
        samples_us=(median_us - 0.1, median_us, median_us + 0.1),
    )
    large = dataclasses.replace(medium, median_us=700.0, xla_us=600.0, samples_us=(700.0,))
    return dataclasses.replace(
        Evaluation(
            task=RELU,
            task_version=get_task(RELU).version,
            target="cuda",
            correct=True,
            combined_score=1.25,
            status="accepted",
            stage=None,
            reason=None,
            message="",
            gates=(GateResult(name="contract", passed=True, reason=None, message="", seconds=0.001),),
            filters={
                "output_std": FilterResult(passed=True, value=0.1 + 0.2, threshold=0.02, message="fine"),
                "output_range": FilterResult(passed=True, value=float("inf"), threshold=None, message="not finite"),
            },
            sizes={"large": large, "small": size, "medium": medium},
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
            compiled_for=("sm_80",),
            jail="landlock+seccomp",
            seeds={"small-0": 1},
            candidate_sha256=sha256_of_text(source),
            duration_s=0.35,
            timer="cupti",
            environment={"jax": "0.10.2"},
            texts_size="medium",
            texts=TEXTS,
        ),
        **changes,
    )


def untimed(source: str, **changes: Any) -> Evaluation:
    """A correct verdict from a machine without a GPU."""
    sizes = {"small": SizeResult(shape=((512, 512),), correct=True, normwise_error=0.0, bound=2e-6)}
    return timed(source, ran_on="cpu", target="cpu", timer="untimed", combined_score=1.0, sizes=sizes, **changes)


def refused(source: str, **changes: Any) -> Evaluation:
    """A candidate that never came to run."""
    verdict = {"correct": False, "combined_score": 0.0, "status": "rejected", "stage": "trace", "reason": "timeout"}
    nothing = {"filters": {}, "sizes": {}, "compiled": {}, "ran_on": None, "timer": "untimed", "texts": {}}
    return timed(source, **{**verdict, **nothing, "message": "took \udc80 too long", "texts_size": None, **changes})


def made(path: Path) -> Archive:
    """The archive, open."""
    archive = open_archive(path)
    archive.add_tasks(load_tasks())
    original = archive.add_program(RELU, ORIGINAL, origin="tpu_original")
    archive.add_finding(original, "block_size", "blocks are too large", environment={})
    seed = archive.add_program(RELU, SEED, origin="seed", parent_sha256=original.sha256, name="the seed")
    archive.add_evaluation(seed, untimed(SEED))
    archive.add_evaluation(seed, timed(SEED), other_samples_us={"medium": {"xla": [50.0, 50.5]}})
    archive.add_run("evolve", run_id="run", task=RELU)
    child = archive.add_program(
        RELU,
        CHILD,
        origin="mutation",
        parent_sha256=seed.sha256,
        run_id="run",
        generation=3,
        island=1,
        metadata={"model_name": "a-model@http://127.0.0.1:1/v1", "patch_type": "diff"},
    )
    archive.add_evaluation(child, timed(CHILD, 20.0, ran_on="NVIDIA A100"))
    archive.add_evaluation(child, timed(CHILD, 25.0))
    grandchild = archive.add_program(
        RELU,
        GRANDCHILD,
        origin="mutation",
        parent_sha256=child.sha256,
        run_id="run",
        generation=4,
        metadata={"model_name": "local/pallas-evo-offline@http://127.0.0.1:2/v1"},
    )
    archive.add_evaluation(grandchild, refused(GRANDCHILD))
    hand = archive.add_program(RELU, HOSTILE, origin="candidate", name="mine \udc80")
    archive.add_evaluation(hand, untimed(HOSTILE))
    archive.add_program(SWIGLU, seed_file(SWIGLU).read_text(encoding="utf-8"), origin="seed")
    return archive
