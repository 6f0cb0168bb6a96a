"""Level 1: the 27 single operators."""

from __future__ import annotations

from pallas_evo.tasks.building import array, dims, indices, normal, scaled, task
from pallas_evo.types import Stress

_X = normal("x", "M", "N")
_Y = normal("y", "M", "N")
_POSITIVE = array("x", "positive", "M", "N")
_MN = ("M", "N")
_ROWS = ("M",)

_ELEMENTWISE = dims(M=(512, 4096, 16384), N=(512, 4096, 16384))
_NORMALISE = dims(M=(256, 2048, 8192), N=(256, 1024, 4096))
_REDUCE = dims(M=(512, 4096, 16384), N=(256, 2048, 8192))
_SOFTMAX = dims(M=(256, 2048, 8192), N=(256, 2048, 8192))
_CUBE = dims(M=(256, 1024, 4096), K=(256, 1024, 4096), N=(256, 1024, 4096))
_BATCH = dims(B=(4, 8, 16, 64), M=(64, 256, 512), K=(64, 256, 512), N=(64, 256, 512))
_OUTER = dims(M=(256, 1024, 4096), N=(256, 1024, 4096))
_LABELS = dims(M=(128, 1024, 4096), N=(64, 512, 2048))
_LOSS = dims(M=(256, 2048, 8192), N=(128, 1024, 4096))
_EMBED = dims(V=(8000, 32000, 128000, 131072), D=(256, 768, 1024), N=(128, 512, 2048))
_ONE_HOT = dims(N=(128, 512, 2048))
_GENOME = dims(L=(1024, 4096, 16384, 65536))

_SMALL_X = scaled(0.001, "x")
_LARGE_X = scaled(64, "x")
# Only the logits are scaled: labels times 64 would be probability rows no longer, and the loss is linear in them, so
# that scaling them tests nothing.
_LARGE_LOGITS = scaled(64, "logits")
_TINY = Stress(
    text="one more seed with inputs uniform on (0, 1e-4), correctness only", inputs=("x",), uniform=(0.0, 1e-4)
)

TASKS = (
    task(1, "L1/relu", "activation", [_X], _MN, "exact", _ELEMENTWISE, "max(x, 0)"),
    task(
        2, "L1/gelu", "activation", [_X], _MN, "f32", _ELEMENTWISE,
        "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
        note="tanh approximation, as jax.nn.gelu does by default",
    ),
    task(3, "L1/silu", "activation", [_X], _MN, "f32", _ELEMENTWISE, "x / (1 + exp(-x))"),
    task(4, "L1/sigmoid", "activation", [_X], _MN, "f32", _ELEMENTWISE, "1 / (1 + exp(-x))"),
    task(5, "L1/tanh", "activation", [_X], _MN, "f32", _ELEMENTWISE, "tanh(x)"),
    task(
        6, "L1/layernorm", "normalization", [_X], _MN, "f32", _NORMALISE,
        "(x - mean(x, -1)) / sqrt(var(x, -1) + 1e-5), population variance, no affine",
        stress=_SMALL_X,
    ),
    task(
        7, "L1/rmsnorm", "normalization", [_X], _MN, "f32", _NORMALISE,
        "x / sqrt(mean(x^2, -1) + 1e-5)",
        stress=_SMALL_X,
    ),
    task(8, "L1/matmul", "matmul", [normal("x", "M", "K"), normal("y", "K", "N")], _MN, "dot", _CUBE, "x @ y"),
    task(
        9, "L1/batched_matmul", "matmul", [normal("x", "B", "M", "K"), normal("y", "B", "K", "N")],
        ("B", "M", "N"), "dot", _BATCH,
        "x[b] @ y[b]",
    ),
    task(10, "L1/outer_product", "matmul", [normal("x", "M"), normal("y", "N")], _MN, "exact", _OUTER, "x[i] y[j]"),
    task(11, "L1/reduce_sum", "reduce", [_X], _ROWS, "f32", _REDUCE, "sum(x, -1)"),
    task(12, "L1/reduce_max", "reduce", [_X], _ROWS, "exact", _REDUCE, "max(x, -1)"),
    task(
        13, "L1/reduce_mean", "reduce", [_X], _ROWS, "f32", _REDUCE,
        "mean(x, -1)",
        note="zero for all rows must fail: the mean of many normals is near 0",
    ),
    task(
        14, "L1/softmax", "softmax", [_X], _MN, "f32", _SOFTMAX,
        "exp(x - max) / sum(exp(x - max)) over the last axis",
        note="outputs are about 1/N: an absolute tolerance of 1e-3 accepts zeros",
        stress=_LARGE_X,
    ),
    task(
        15, "L1/log_softmax", "softmax", [_X], _MN, "f32", _SOFTMAX,
        "x - max - log(sum(exp(x - max))) over the last axis",
        stress=_LARGE_X,
    ),
    task(16, "L1/exp", "elementwise", [_X], _MN, "f32", _ELEMENTWISE, "exp(x)"),
    task(
        17, "L1/log", "elementwise", [_POSITIVE], _MN, "f32", _ELEMENTWISE,
        "log(x + 1e-7)",
        note="inputs must be positive",
    ),
    task(18, "L1/add", "elementwise", [_X, _Y], _MN, "exact", _ELEMENTWISE, "x + y"),
    task(19, "L1/multiply", "elementwise", [_X, _Y], _MN, "exact", _ELEMENTWISE, "x * y"),
    task(
        20, "L1/rsqrt", "elementwise", [_POSITIVE], _MN, "f32", _ELEMENTWISE,
        "1 / sqrt(x + 1e-5)",
        note="inputs must be positive",
        stress=_TINY,
    ),
    task(21, "L1/clamp", "elementwise", [_X], _MN, "exact", _ELEMENTWISE, "min(max(x, -1), 1)"),
    task(
        22, "L1/cross_entropy", "loss", [normal("logits", "M", "N"), array("labels", "probability_rows", "M", "N")],
        _ROWS, "f32", _LABELS,
        "-sum(labels * log_softmax(logits), -1)",
        stress=_LARGE_LOGITS,
    ),
    task(
        23, "L1/mse_loss", "loss", [normal("pred", "M", "N"), normal("target", "M", "N")], _ROWS, "f32", _LOSS,
        "mean((pred - target)^2, -1)",
    ),
    task(
        24, "L1/cosine_sim", "loss", [_X, _Y], _ROWS, "f32", _LOSS,
        "sum(x y, -1) / (|x| |y| + 1e-8)",
        note="zero for all rows must fail",
        stress=scaled(0.001, "x", "y"),
    ),
    task(
        25, "L1/embedding_lookup", "index", [normal("table", "V", "D"), indices("indices", "table.shape[0]", "N")],
        ("N", "D"), "exact", _EMBED,
        "table[indices[n], :]",
        note="D is not always a power of two",
    ),
    task(
        26, "L1/one_hot", "index", [indices("indices", "1024", "N")], ("N", 1024), "exact", _ONE_HOT,
        "1 where column == indices[n], else 0",
        note="sparse output: the std and axes filters must not reject it",
    ),
    task(
        27, "L1/nucleotide_onehot", "genomics", [indices("sequence", "4", "L")], ("L", 4), "exact", _GENOME,
        "1 where column == sequence[n] (A=0 C=1 G=2 T=3), else 0",
    ),
)  # fmt: skip
