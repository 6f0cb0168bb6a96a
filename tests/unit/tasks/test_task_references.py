"""Each reference against a NumPy computation of its own, in float64; and the yardstick's rounding.

The computations here go by other routes than the references where there is one (loops over rows, windows and terms,
np.linalg.norm, logaddexp), so that one slip cannot stand in both.
"""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_evo.tasks import (
    dims_of,
    draw_inputs,
    get_task,
    load_tasks,
    odd_dims,
    oracle,
    reference,
    reference64,
    workload,
    yardstick,
)

TASKS = load_tasks()
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)


def by_rows(function):
    return lambda *arrays: np.array([function(*rows) for rows in zip(*arrays, strict=True)])


def gelu(z):
    return z * sigmoid(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z))  # (1 + tanh u) / 2 = sigmoid(2 u)


def sigmoid(z):
    return np.exp(-np.logaddexp(0, -z))


def normalise(row):
    return (row - row.mean()) / math.sqrt(row.var() + 1e-5)


def rms_normalise(row):
    return row / math.sqrt(np.dot(row, row) / len(row) + 1e-5)


def log_softmax(row):
    return row - np.logaddexp.reduce(row)


def cross_entropy(logits, labels):
    return -np.dot(labels, log_softmax(logits))


def softmax(row):
    return np.exp(log_softmax(row))


def attention(q, k, v):
    return np.array([softmax(k @ query / math.sqrt(len(query))) @ v for query in q])


def cosine(x, y):
    return np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y) + 1e-8)


def binary_cross_entropy(z, t):
    return t * np.logaddexp(0, -z) + (1 - t) * np.logaddexp(0, z)


def lookup(table, indices):
    return np.stack([table[index] for index in indices])


def scan(sequence, pwm):
    width = pwm.shape[1]
    letters = sequence.argmax(axis=1)
    return np.array(
        [sum(pwm[letters[p + t], t] for t in range(width)) for p in range(len(letters) - width + 1)], np.float64
    )


def distances(x):
    return np.array([[math.sqrt(math.dist(a, b) ** 2 + 1e-8) for b in x] for a in x])


def block(x, wq, wk, wv, wo, w_ff):
    n = by_rows(rms_normalise)(x)
    h = x + attention(n @ wq, n @ wk, n @ wv) @ wo
    return h + np.clip(by_rows(rms_normalise)(h) @ w_ff, 0, None)


def triangle(pair, mask):
    out = pair.copy()
    for k in range(len(mask)):
        out += (pair[:, k] * mask[:, k, None])[:, None, :] * (pair[k] * mask[k, :, None])[None, :, :]
    return out


INDEPENDENT = {
    "L1/relu": lambda x: np.where(x > 0, x, 0),
    "L1/gelu": gelu,
    "L1/silu": lambda x: x * sigmoid(x),
    "L1/sigmoid": sigmoid,
    "L1/tanh": lambda x: 2 * sigmoid(2 * x) - 1,
    "L1/layernorm": by_rows(normalise),
    "L1/rmsnorm": by_rows(rms_normalise),
    "L1/matmul": lambda x, y: x @ y,
    "L1/batched_matmul": by_rows(lambda x, y: x @ y),
    "L1/outer_product": np.outer,
    "L1/reduce_sum": by_rows(math.fsum),
    "L1/reduce_max": by_rows(max),
    "L1/reduce_mean": by_rows(lambda row: math.fsum(row) / len(row)),
    "L1/softmax": by_rows(softmax),
    "L1/log_softmax": by_rows(log_softmax),
    "L1/exp": np.exp,
    "L1/log": lambda x: np.log(x + 1e-7),
    "L1/add": np.add,
    "L1/multiply": np.multiply,
    "L1/rsqrt": lambda x: (x + 1e-5) ** -0.5,
    "L1/clamp": lambda x: np.clip(x, -1, 1),
    "L1/cross_entropy": by_rows(cross_entropy),
    "L1/mse_loss": by_rows(lambda a, b: math.fsum((a - b) ** 2) / len(a)),
    "L1/cosine_sim": by_rows(cosine),
    "L1/embedding_lookup": lookup,
    "L1/one_hot": lambda indices: np.eye(1024)[indices],
    "L1/nucleotide_onehot": lambda sequence: np.eye(4)[sequence],
    "L2/matmul_relu": lambda x, w: np.clip(x @ w, 0, None),
    "L2/matmul_gelu": lambda x, w: gelu(x @ w),
    "L2/matmul_silu": lambda x, w: (x @ w) * sigmoid(x @ w),
    "L2/rmsnorm_residual": lambda x, residual: by_rows(rms_normalise)(x) + residual,
    "L2/layernorm_residual": lambda x, residual: by_rows(normalise)(x) + residual,
    "L2/swiglu": lambda x, gate, up: (x @ gate) * sigmoid(x @ gate) * (x @ up),
    "L2/geglu": lambda x, gate, up: gelu(x @ gate) * (x @ up),
    "L2/linear_bias_relu": lambda x, w, b: np.clip(x @ w + b, 0, None),
    "L2/qk_softmax": lambda q, k: by_rows(softmax)(q @ k.T / math.sqrt(q.shape[1])),
    "L2/fused_softmax_cross_entropy": by_rows(cross_entropy),
    "L2/sigmoid_bce": binary_cross_entropy,
    "L2/pwm_scan": scan,
    "L2/pairwise_distance": distances,
    "L3/flash_attention": attention,
    "L3/multi_head_attention": by_rows(attention),
    "L3/gated_mlp": lambda x, gate, up, down: ((x @ gate) * sigmoid(x @ gate) * (x @ up)) @ down,
    "L3/transformer_block": block,
    "L3/triangle_update": triangle,
}


def check(task, dims, seed, stress=False):
    inputs = draw_inputs(task, dims, np.random.default_rng(seed), stress=stress)
    got = reference64(task, inputs)
    want = INDEPENDENT[task.id](*(value.astype(np.float64) if value.dtype.kind == "f" else value for value in inputs))
    assert got.dtype == np.float64
    assert got.shape == workload(task, dims, "x").output.shape == want.shape
    # Relative to the output's largest: both sides cancel, and a softmax's smallest outputs are denormal.
    assert np.abs(got - want).max() <= 1e-11 * np.abs(want).max()


@every_task
def test_reference_is_the_formula_at_odd_sizes(task):
    for seed, dims in enumerate(odd_dims(task)):
        check(task, dims, seed)


@every_task
def test_reference_is_the_formula_at_small(task):
    check(task, dims_of(task, "small"), 7)


@pytest.mark.parametrize("task", [task for task in TASKS if task.stress], ids=lambda task: task.id)
def test_reference_is_the_formula_under_stress(task):
    check(task, odd_dims(task)[0], 5, stress=True)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_reference_is_the_formula_at_any_size(data):
    task = data.draw(st.sampled_from(TASKS))
    extents = st.integers(1, 9) | st.sampled_from([11, 13, 16, 17, 23, 31, 32, 33])
    dims = {name: data.draw(extents, label=name) for name in task.dims}
    if "T" in dims:
        dims["L"] = max(dims["L"], dims["T"])
    check(task, dims, data.draw(st.integers(0, 2**32)))


@every_task
def test_yardstick_errs_as_its_class_does(task):
    inputs = draw_inputs(task, dims_of(task, "small"), np.random.default_rng(1))
    exact, answer = reference64(task, inputs), yardstick(task, inputs)
    assert (answer.dtype, answer.shape) == (np.float32, exact.shape)
    error = np.linalg.norm(answer - exact) / np.linalg.norm(exact)
    low, high = {"exact": (0, 6e-8), "f32": (1e-9, 1e-6), "dot": (2e-5, 2e-3)}[task.precision]
    assert low <= error <= high


@every_task
def test_oracles_are_deterministic_and_leave_inputs_and_flags_alone(task):
    inputs = draw_inputs(task, odd_dims(task)[0], np.random.default_rng(2))
    before = [value.copy() for value in inputs]
    once, again = ((reference64(task, inputs), yardstick(task, inputs)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(before, inputs, strict=True))
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize("task", [task for task in TASKS if task.precision == "exact"], ids=lambda task: task.id)
def test_exact_tasks_have_one_right_float32_answer(task):
    """NumPy in float32 and the reference in float32 agree bit for bit: what `exact` promises."""
    inputs = draw_inputs(task, odd_dims(task)[0], np.random.default_rng(2))
    np.testing.assert_array_equal(yardstick(task, inputs), INDEPENDENT[task.id](*inputs).astype(np.float32))


@every_task
def test_reference_lowers_as_plain_jax_in_float32(task):
    shapes = workload(task, odd_dims(task)[2], "odd-3")
    arguments = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in shapes.inputs]
    out = jax.eval_shape(reference(task), *arguments)
    assert (out.shape, out.dtype.name) == (shapes.output.shape, shapes.output.dtype)


@pytest.mark.parametrize("task", [task for task in TASKS if task.precision == "dot"], ids=lambda task: task.id)
def test_every_dot_goes_through_einsum(task):
    """A dot that bypassed the given einsum would stay in float32, and the yardstick would be too strict there."""
    import jax.numpy as jnp

    calls = []

    def counting(equation, *operands):
        calls.append(equation)
        return jnp.zeros_like(jnp.einsum(equation, *operands))

    inputs = draw_inputs(task, odd_dims(task)[0], np.random.default_rng(2))
    shapes = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in inputs]
    assert "dot_general" not in str(jax.make_jaxpr(lambda *a: reference(task)(*a, einsum=_no_dot))(*shapes))
    reference(task)(*inputs, einsum=counting)
    expected = {"L2/swiglu": 2, "L2/geglu": 2, "L3/gated_mlp": 3, "L3/transformer_block": 7}
    expected |= {"L3/flash_attention": 2, "L3/multi_head_attention": 2}
    assert len(calls) == expected.get(task.id, 1)


def _no_dot(equation, *operands):
    """An einsum of the right shape that contracts nothing."""
    import jax.numpy as jnp

    return jnp.zeros(jax.eval_shape(lambda *a: jnp.einsum(equation, *a), *operands).shape, jnp.float32)


def test_tf32_rounds_to_ten_bits_with_ties_away_from_zero():
    step = 2.0**-10
    given_values = [1.0, 1 + step, 1 + step / 2, 1 + step / 2.001, -1 - step / 2, 1 + 1.5 * step, 0.0, -0.0, 2 - 2**-23]
    rounded = [1.0, 1 + step, 1 + step, 1.0, -1 - step, 1 + 2 * step, 0.0, -0.0, 2.0]
    one = np.ones(1, np.float32)
    for value, want in zip(given_values, rounded, strict=True):
        got = np.asarray(oracle.tf32_einsum("i,i->", np.array([value], np.float32), one))
        assert got == np.float32(want)


def test_rows_that_stand_alone_go_in_chunks(monkeypatch):
    """Chunks change no value and cover every row; a task whose rows depend on each other is never cut."""
    for id, dims in (("L1/softmax", {"M": 103, "N": 7}), ("L1/cosine_sim", {"M": 103, "N": 7})):
        task = get_task(id)
        inputs = draw_inputs(task, dims, np.random.default_rng(0))
        whole = reference64(task, inputs)
        with monkeypatch.context() as patched:
            patched.setattr(oracle, "_CHUNK_ELEMENTS", 70)
            np.testing.assert_allclose(reference64(task, inputs), whole, rtol=1e-14)
    monkeypatch.setattr(oracle, "_CHUNK_ELEMENTS", 1)
    for id in ("L1/matmul", "L3/triangle_update", "L2/pwm_scan", "L1/outer_product"):
        task = get_task(id)
        check(task, odd_dims(task)[3], 0)
