"""What every correct program must read and compute: the ground that the physical floor of a time stands on.

Both figures are lower bounds. Bytes are unique bytes of the inputs. A task's dots count a multiplication and an
addition a term, by the textbook algorithm; everything else is counted so low that no program can undercut it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod

import numpy as np

from pallas_evo.tasks.shapes import workload
from pallas_evo.types import Floor, Task


@cache
def _chain(*extents: int) -> int:
    """FLOPs of the cheapest order to multiply a chain of matrices; matrix i has extents[i] rows."""
    last = len(extents) - 1
    if last < 2:
        return 0
    return min(
        _chain(*extents[: cut + 1]) + _chain(*extents[cut:]) + 2 * extents[0] * extents[cut] * extents[last]
        for cut in range(1, last)
    )


def _block(d: Mapping[str, int]) -> int:
    """The transformer block's products, in whichever order is cheapest: nothing forces a program to form q or v."""
    n, wide, head = d["N"], d["D"], d["E"]
    return _chain(n, wide, head, wide, n) + _chain(n, n, wide, head, wide) + 2 * n * wide * wide


_DOTS: dict[str, Callable[[Mapping[str, int]], int]] = {
    "L1/matmul": lambda d: 2 * d["M"] * d["K"] * d["N"],
    "L1/batched_matmul": lambda d: 2 * d["B"] * d["M"] * d["K"] * d["N"],
    "L2/matmul_relu": lambda d: 2 * d["M"] * d["K"] * d["N"],
    "L2/matmul_gelu": lambda d: 2 * d["M"] * d["K"] * d["N"],
    "L2/matmul_silu": lambda d: 2 * d["M"] * d["K"] * d["N"],
    "L2/swiglu": lambda d: 4 * d["M"] * d["K"] * d["F"],
    "L2/geglu": lambda d: 4 * d["M"] * d["K"] * d["F"],
    "L2/linear_bias_relu": lambda d: 2 * d["M"] * d["K"] * d["N"],
    "L2/qk_softmax": lambda d: 2 * d["N"] ** 2 * d["D"],
    # Half the matrix, for it is symmetric and its diagonal is known; two operations a term, the Gram matrix's count.
    "L2/pairwise_distance": lambda d: d["N"] * (d["N"] - 1) * d["D"],
    "L3/flash_attention": lambda d: 4 * d["N"] ** 2 * d["D"],
    "L3/multi_head_attention": lambda d: 4 * d["H"] * d["N"] ** 2 * d["D"],
    "L3/gated_mlp": lambda d: 6 * d["M"] * d["D"] * d["F"],
    "L3/transformer_block": _block,
    "L3/triangle_update": lambda d: 2 * d["N"] ** 3 * d["C"],
}
_INDEXING = ("L1/embedding_lookup", "L1/one_hot", "L1/nucleotide_onehot")  # they only move and compare


def dense_flops(task: Task, dims: Mapping[str, int]) -> int:
    """FLOPs at `dims` whatever is drawn: the floor, save for triangle_update, where every mask counts as set."""
    if task.id in _DOTS:
        return _DOTS[task.id](dims)
    if task.id in _INDEXING:
        return 0
    # A value made of m inputs takes m - 1 operations of two operands, and every output takes at least one.
    shapes = workload(task, dims, "floor")
    read, written = sum(prod(array.shape) for array in shapes.inputs), prod(shapes.output.shape)
    return max(written, read - written)


def floor(task: Task, inputs: Sequence[np.ndarray]) -> Floor:
    """What every correct program must do with these inputs.

    Whole inputs are counted even where a law makes a part redundant (a one-hot row is known from three of its four
    numbers): memory is read in sectors of 32 bytes, which hold the rest anyway. Output bytes are not counted.
    """
    dims = dims_from(task, inputs)
    flops = dense_flops(task, dims)
    bytes_read = sum(array.nbytes for array in inputs)
    if task.id == "L1/embedding_lookup":
        table, indices = inputs
        bytes_read = len(np.unique(indices)) * table.shape[1] * table.itemsize + indices.nbytes
    elif task.id == "L3/triangle_update":
        pair, mask = inputs
        # Terms whose two masks are set; a program may skip all others. sum_k (rows with k set) (columns set in row k)
        terms = np.count_nonzero(mask, axis=0) @ np.count_nonzero(mask, axis=1)
        flops = 2 * int(terms) * pair.shape[2]
    return Floor(bytes_read=bytes_read, flops=flops)


def dims_from(task: Task, inputs: Sequence[np.ndarray]) -> dict[str, int]:
    """The dimension letters, read back from the inputs' shapes."""
    return {
        name: size
        for spec, array in zip(task.inputs, inputs, strict=True)
        for name, size in zip(spec.shape, array.shape, strict=True)
        if isinstance(name, str)
    }
