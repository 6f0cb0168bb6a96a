"""A, the tracer: a candidate's Python, run in a jail, becomes exported programs as bytes.

trace           two independent exports of a candidate at every workload, or a Rejection
trace_original  the same for the TPU-sized originals, with the Triton backend forced
Traced          what `trace` returns: unvalidated bytes
Tracers         a pair of processes with JAX loaded, started ahead of time

Names are looked up when they are first used: the child imports its own module only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pallas_evo.tracing.tracer import Traced as Traced
    from pallas_evo.tracing.tracer import Tracers as Tracers
    from pallas_evo.tracing.tracer import trace as trace
    from pallas_evo.tracing.tracer import trace_original as trace_original

__all__ = ["Traced", "Tracers", "trace", "trace_original"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pallas_evo.tracing import tracer

    return getattr(tracer, name)
