"""Level 2: the 13 fused patterns."""

from __future__ import annotations

from pallas_evo.tasks.building import array, dims, normal, scaled, task, weight

_X = normal("x", "M", "N")
_RESIDUAL = normal("residual", "M", "N")
_XW = [normal("x", "M", "K"), weight("w", "K", "N")]
_GATED = [normal("x", "M", "K"), weight("w_gate", "K", "F"), weight("w_up", "K", "F")]
_LOGITS = normal("logits", "M", "N")
_MN = ("M", "N")

_CUBE = dims(M=(256, 1024, 4096), K=(256, 1024, 4096), N=(256, 1024, 4096))
_NORMALISE = dims(M=(256, 2048, 8192), N=(256, 1024, 4096))
_GATE = dims(M=(128, 512, 2048), K=(256, 1024, 4096), F=(512, 2048, 8192))
_LINEAR = dims(M=(256, 1024, 4096), K=(256, 1024, 4096), N=(512, 2048, 8192))
_QK = dims(N=(64, 256, 1024, 4096), D=(32, 64, 128, 256))
_LABELS = dims(M=(128, 1024, 4096), N=(64, 512, 2048))
_LOSS = dims(M=(256, 2048, 8192), N=(128, 1024, 4096))
_SCAN = dims(L=(256, 1024, 4096, 65536), T=(8, 12, 16, 64))
_PAIRS = dims(N=(64, 256, 1024, 4096), D=(16, 32, 64, 512))

_SMALL_NORM = scaled(0.001, "x", "residual")

TASKS = (
    task(28, "L2/matmul_relu", "matmul_activation", _XW, _MN, "dot", _CUBE, "z = x @ w; max(z, 0)"),
    task(29, "L2/matmul_gelu", "matmul_activation", _XW, _MN, "dot", _CUBE, "z = x @ w; gelu_tanh(z)"),
    task(30, "L2/matmul_silu", "matmul_activation", _XW, _MN, "dot", _CUBE, "z = x @ w; z sigmoid(z)"),
    task(
        31, "L2/rmsnorm_residual", "norm_residual", [_X, _RESIDUAL], _MN, "f32", _NORMALISE,
        "x / sqrt(mean(x^2, -1) + 1e-5) + residual",
        stress=_SMALL_NORM,
    ),
    task(
        32, "L2/layernorm_residual", "norm_residual", [_X, _RESIDUAL], _MN, "f32", _NORMALISE,
        "(x - mean) / sqrt(var + 1e-5) + residual",
        stress=_SMALL_NORM,
    ),
    task(33, "L2/swiglu", "mlp_fusion", _GATED, ("M", "F"), "dot", _GATE, "silu(x @ w_gate) * (x @ w_up)"),
    task(34, "L2/geglu", "mlp_fusion", _GATED, ("M", "F"), "dot", _GATE, "gelu_tanh(x @ w_gate) * (x @ w_up)"),
    task(
        35, "L2/linear_bias_relu", "matmul_activation", [*_XW, normal("b", "N")], _MN, "dot", _LINEAR,
        "max(x @ w + b, 0)",
    ),
    task(
        36, "L2/qk_softmax", "attention_component", [normal("q", "N", "D"), normal("k", "N", "D")],
        ("N", "N"), "dot", _QK,
        "softmax(q @ k^T / sqrt(d), -1)",
        stress=scaled(64, "q", "k"),
    ),
    task(
        37, "L2/fused_softmax_cross_entropy", "loss_fusion", [_LOGITS, array("labels", "probability_rows", "M", "N")],
        ("M",), "f32", _LABELS,
        "-sum(labels * log_softmax(logits), -1), one pass over the row",
        stress=scaled(64, "logits"),  # labels stay probability rows, as in L1/cross_entropy
    ),
    task(
        38, "L2/sigmoid_bce", "loss_fusion", [_LOGITS, array("targets", "unit_interval", "M", "N")],
        _MN, "f32", _LOSS,
        "max(z, 0) - z t + log(1 + exp(-|z|)), elementwise",
        note="the usual binary cross-entropy with logits",
        stress=scaled(64, "logits", what="the logits"),
    ),
    task(
        39, "L2/pwm_scan", "genomics", [array("sequence_onehot", "onehot4", "L", 4), normal("pwm", 4, "T")],
        ("L-T+1",), "f32", _SCAN,
        "score[p] = sum_{t<m, c<4} sequence_onehot[p+t, c] pwm[c, t]",
        note="the output length is not a power of two; L >= T",
    ),
    task(
        40, "L2/pairwise_distance", "genomics", [normal("x", "N", "D")], ("N", "N"), "f32", _PAIRS,
        "sqrt(sum_d (x[i,d] - x[j,d])^2 + 1e-8)",
        note="|x|^2 + |y|^2 - 2 x.y loses the diagonal to cancellation",
    ),
)  # fmt: skip
