"""A made-up verdict for tests that judge nothing."""

from __future__ import annotations

from pallas_evo.types import Compiled, Evaluation, FilterResult, GateResult, SizeResult


def verdict(**changed) -> Evaluation:
    """A refused candidate, as the judge would write it down on a machine without a GPU."""
    content = {
        "task": "L1/relu",
        "task_version": 1,
        "target": "cpu",
        "correct": False,
        "combined_score": 0.0,
        "status": "rejected",
        "stage": "output_std",
        "reason": "output_std",
        "message": "Too alike.",
        "gates": (
            GateResult(name="contract", passed=True, reason=None, message="", seconds=0.001),
            GateResult(name="output_std", passed=False, reason="output_std", message="Too alike.", seconds=0.25),
            GateResult(name="numerics", passed=False, reason="numerics", message="Far off.", seconds=0.5),
        ),
        "filters": {"output_std": FilterResult(passed=False, value=0.75, threshold=0.02, message="Too alike.")},
        "sizes": {"small": SizeResult(shape=((512, 512),), correct=False, normwise_error=0.5, bound=2e-6)},
        "compiled": {
            "sm_80": Compiled(
                sm="sm_80",
                registers=40,
                spill_bytes=8,
                shared_bytes=1024,
                occupancy=0.5,
                ptx_bytes=999,
                seconds=0.3,
            )
        },
        "ran_on": "cpu",
        "compiled_for": ("sm_80",),
        "jail": "landlock+seccomp",
        "seeds": {"small": 7},
        "candidate_sha256": "0" * 64,
        "duration_s": 1.5,
        "text_feedback": "Rejected (output_std): Too alike. Read every input.",
        "output_text": "hello from the candidate\n",
        "environment": {"jax": "0.10.2"},
    }
    return Evaluation(**{**content, **changed})
