"""The executor: runs a validated artefact in NumPy, on any machine, and sees what a GPU cannot.

It runs the Triton IR of every kernel for the whole grid, checks every access against its buffer, finds elements that
nothing wrote and programs that race, and counts bytes and FLOPs. It imports neither jax nor a reference.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pallas_evo.errors import UnknownOperation
from pallas_evo.running.executor.glue import ALLOWED_GLUE_OPS, GlueRunner, Value
from pallas_evo.running.executor.handlers import HANDLERS
from pallas_evo.running.executor.libdevice import LIBDEVICE
from pallas_evo.running.executor.memory import Refused
from pallas_evo.running.executor.reading import read_program
from pallas_evo.types import ArraySpec, Counts, Rejection

ALLOWED_TRITON_OPS: frozenset[str] = frozenset(
    {*HANDLERS, "builtin.module", "tt.func", "tt.return", "tt.reduce.return", "tt.scan.return"}
    | {"scf.yield", "scf.condition"}
)
"""Every operation that the executor runs inside a kernel; the validator lets no other through."""

LIBDEVICE_SYMBOLS: frozenset[str] = frozenset(LIBDEVICE)
"""Every symbol of `tt.extern_elementwise` that the executor runs."""

__all__ = ["ALLOWED_GLUE_OPS", "ALLOWED_TRITON_OPS", "LIBDEVICE_SYMBOLS", "Executed", "execute"]


@dataclass(frozen=True, kw_only=True)
class Executed:
    """A run without a fault: the output, what was counted, and the wall-clock time it took."""

    output: np.ndarray
    counts: Counts
    seconds: float


def execute(
    module: str | bytes, inputs: Sequence[np.ndarray], output: ArraySpec, *, lane_elements: int = 1 << 22
) -> Executed | Rejection:
    """Run a validated StableHLO module on these inputs.

    Args:
        module: text or bytecode, as in `Artefact.module`.
        inputs: the task's arrays, in order; they are not changed.
        output: the shape and dtype that the module must return.
        lane_elements: no value holds more elements at once (unless one program's alone does); the grid goes in chunks.

    Returns:
        The output and the counts, or a rejection: `out_of_bounds`, `unwritten` or `race`.

    Raises:
        UnknownOperation: something that the validator lets through and the executor does not know.
    """
    start = time.perf_counter()
    runner = GlueRunner(read_program(module), lane_elements)
    try:
        results = runner.call("main", [Value(np.asarray(array)) for array in inputs])
    except Refused as refused:
        return Rejection(reason=refused.reason, message=str(refused))
    if len(results) != 1:
        raise UnknownOperation(f"the module returns {len(results)} arrays; expected one.")
    array, defined = results[0].array, results[0].defined
    if array.shape != output.shape or array.dtype.name != output.dtype:
        raise UnknownOperation(f"the module returns {array.dtype}{list(array.shape)}; expected {output}.")
    if defined is not None:
        missing = np.flatnonzero(~defined)
        first = tuple(int(index) for index in np.unravel_index(missing[0], array.shape))
        return Rejection(
            reason="unwritten",
            message=f"{missing.size} of the output's {array.size} elements are written by no program, the first at "
            f"index {first}. Let the grid cover the whole output, edges too.",
        )
    tally = runner.tally
    counts = Counts(bytes_loaded=tally.bytes_loaded, bytes_stored=tally.bytes_stored, flops=tally.flops)
    return Executed(output=np.array(array), counts=counts, seconds=time.perf_counter() - start)
