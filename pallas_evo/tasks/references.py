"""The 45 references: each formula in plain jax.numpy, the slow and obvious form.

Those of class `dot` take `einsum`, so that the judge can pass one that rounds its operands. None of them names a
dtype: on float64 inputs they compute in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

Einsum = Callable[..., Array]


def relu(x: Array) -> Array:
    return jnp.maximum(x, 0)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + jnp.tanh((2 / jnp.pi) ** 0.5 * (x + 0.044715 * x**3)))


def silu(x: Array) -> Array:
    return x / (1 + jnp.exp(-x))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + jnp.exp(-x))


def layernorm(x: Array) -> Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def rmsnorm(x: Array) -> Array:
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-5)


def softmax(x: Array) -> Array:
    grown = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
    return grown / jnp.sum(grown, axis=-1, keepdims=True)


def log_softmax(x: Array) -> Array:
    below = x - jnp.max(x, axis=-1, keepdims=True)
    return below - jnp.log(jnp.sum(jnp.exp(below), axis=-1, keepdims=True))


def cross_entropy(logits: Array, labels: Array) -> Array:
    return -jnp.sum(labels * log_softmax(logits), axis=-1)


def cosine_sim(x: Array, y: Array) -> Array:
    lengths = jnp.sqrt(jnp.sum(x**2, axis=-1)) * jnp.sqrt(jnp.sum(y**2, axis=-1))
    return jnp.sum(x * y, axis=-1) / (lengths + 1e-8)


def one_hot(indices: Array, letters: int) -> Array:
    return jnp.where(indices[:, None] == jnp.arange(letters), 1.0, 0.0)


def sigmoid_bce(logits: Array, targets: Array) -> Array:
    return jnp.maximum(logits, 0) - logits * targets + jnp.log(1 + jnp.exp(-jnp.abs(logits)))


def pwm_scan(sequence_onehot: Array, pwm: Array) -> Array:
    length, width = sequence_onehot.shape[0], pwm.shape[1]
    windows = sequence_onehot[jnp.arange(length - width + 1)[:, None] + jnp.arange(width)]
    return jnp.sum(windows * pwm.T, axis=(1, 2))


def pairwise_distance(x: Array) -> Array:
    # Under jit the (N, N, D) differences are fused into the sum and never lie in memory.
    return jnp.sqrt(jnp.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1) + 1e-8)


def matmul(x: Array, y: Array, einsum: Einsum = jnp.einsum) -> Array:
    return einsum("mk,kn->mn", x, y)


def batched_matmul(x: Array, y: Array, einsum: Einsum = jnp.einsum) -> Array:
    return einsum("bmk,bkn->bmn", x, y)


def matmul_relu(x: Array, w: Array, einsum: Einsum = jnp.einsum) -> Array:
    return relu(matmul(x, w, einsum))


def matmul_gelu(x: Array, w: Array, einsum: Einsum = jnp.einsum) -> Array:
    return gelu(matmul(x, w, einsum))


def matmul_silu(x: Array, w: Array, einsum: Einsum = jnp.einsum) -> Array:
    return silu(matmul(x, w, einsum))


def swiglu(x: Array, w_gate: Array, w_up: Array, einsum: Einsum = jnp.einsum) -> Array:
    return silu(matmul(x, w_gate, einsum)) * matmul(x, w_up, einsum)


def geglu(x: Array, w_gate: Array, w_up: Array, einsum: Einsum = jnp.einsum) -> Array:
    return gelu(matmul(x, w_gate, einsum)) * matmul(x, w_up, einsum)


def linear_bias_relu(x: Array, w: Array, b: Array, einsum: Einsum = jnp.einsum) -> Array:
    return relu(matmul(x, w, einsum) + b)


def qk_softmax(q: Array, k: Array, einsum: Einsum = jnp.einsum) -> Array:
    return softmax(einsum("nd,md->nm", q, k) / q.shape[-1] ** 0.5)


def flash_attention(q: Array, k: Array, v: Array, einsum: Einsum = jnp.einsum) -> Array:
    return einsum("nm,md->nd", qk_softmax(q, k, einsum), v)


def multi_head_attention(q: Array, k: Array, v: Array, einsum: Einsum = jnp.einsum) -> Array:
    weights = softmax(einsum("hnd,hmd->hnm", q, k) / q.shape[-1] ** 0.5)
    return einsum("hnm,hmd->hnd", weights, v)


def gated_mlp(x: Array, w_gate: Array, w_up: Array, w_down: Array, einsum: Einsum = jnp.einsum) -> Array:
    return matmul(swiglu(x, w_gate, w_up, einsum), w_down, einsum)


def transformer_block(
    x: Array, wq: Array, wk: Array, wv: Array, wo: Array, w_ff: Array, einsum: Einsum = jnp.einsum
) -> Array:
    n = rmsnorm(x)
    attended = flash_attention(matmul(n, wq, einsum), matmul(n, wk, einsum), matmul(n, wv, einsum), einsum)
    h = x + matmul(attended, wo, einsum)
    return h + relu(matmul(rmsnorm(h), w_ff, einsum))


def triangle_update(pair: Array, mask: Array, einsum: Einsum = jnp.einsum) -> Array:
    masked = pair * mask[:, :, None]
    return pair + einsum("ikc,kjc->ijc", masked, masked)


REFERENCES: dict[str, Callable[..., Any]] = {
    "L1/relu": relu,
    "L1/gelu": gelu,
    "L1/silu": silu,
    "L1/sigmoid": sigmoid,
    "L1/tanh": lambda x: jnp.tanh(x),
    "L1/layernorm": layernorm,
    "L1/rmsnorm": rmsnorm,
    "L1/matmul": matmul,
    "L1/batched_matmul": batched_matmul,
    "L1/outer_product": lambda x, y: x[:, None] * y[None, :],
    "L1/reduce_sum": lambda x: jnp.sum(x, axis=-1),
    "L1/reduce_max": lambda x: jnp.max(x, axis=-1),
    "L1/reduce_mean": lambda x: jnp.mean(x, axis=-1),
    "L1/softmax": softmax,
    "L1/log_softmax": log_softmax,
    "L1/exp": lambda x: jnp.exp(x),
    "L1/log": lambda x: jnp.log(x + 1e-7),
    "L1/add": lambda x, y: x + y,
    "L1/multiply": lambda x, y: x * y,
    "L1/rsqrt": lambda x: 1 / jnp.sqrt(x + 1e-5),
    "L1/clamp": lambda x: jnp.minimum(jnp.maximum(x, -1), 1),
    "L1/cross_entropy": cross_entropy,
    "L1/mse_loss": lambda pred, target: jnp.mean((pred - target) ** 2, axis=-1),
    "L1/cosine_sim": cosine_sim,
    "L1/embedding_lookup": lambda table, indices: table[indices],
    "L1/one_hot": lambda indices: one_hot(indices, 1024),
    "L1/nucleotide_onehot": lambda sequence: one_hot(sequence, 4),
    "L2/matmul_relu": matmul_relu,
    "L2/matmul_gelu": matmul_gelu,
    "L2/matmul_silu": matmul_silu,
    "L2/rmsnorm_residual": lambda x, residual: rmsnorm(x) + residual,
    "L2/layernorm_residual": lambda x, residual: layernorm(x) + residual,
    "L2/swiglu": swiglu,
    "L2/geglu": geglu,
    "L2/linear_bias_relu": linear_bias_relu,
    "L2/qk_softmax": qk_softmax,
    "L2/fused_softmax_cross_entropy": cross_entropy,
    "L2/sigmoid_bce": sigmoid_bce,
    "L2/pwm_scan": pwm_scan,
    "L2/pairwise_distance": pairwise_distance,
    "L3/flash_attention": flash_attention,
    "L3/multi_head_attention": multi_head_attention,
    "L3/gated_mlp": gated_mlp,
    "L3/transformer_block": transformer_block,
    "L3/triangle_update": triangle_update,
}
