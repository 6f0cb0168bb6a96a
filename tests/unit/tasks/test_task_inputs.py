"""Input laws, the stress cases, and the variant's draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_evo.errors import UsageError
from pallas_evo.tasks import (
    dims_of,
    draw_inputs,
    draw_variant_dims,
    floor,
    get_task,
    load_tasks,
    odd_dims,
    workload,
)

TASKS = load_tasks()
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
stressed = pytest.mark.parametrize("task", [t for t in TASKS if t.stress], ids=lambda task: task.id)


def admissible(task, dims, spec, value):
    """Whether a drawn array lies in the domain that its law promises."""
    match spec.law:
        case "normal" | "weight":
            return bool(np.isfinite(value).all())
        case "positive":
            return bool(((value > 0.01) & (value < 10)).all())
        case "unit_interval":
            return bool(((value >= 0) & (value <= 1)).all())
        case "zero_one":
            return set(np.unique(value)) <= {0.0, 1.0}
        case "probability_rows":
            return bool((value >= 0).all() and np.allclose(value.astype(np.float64).sum(-1), 1, atol=1e-6))
        case "onehot4":
            return bool((np.sort(value, axis=1) == [0, 0, 0, 1]).all())
        case "index_below:1024":
            return bool(((value >= 0) & (value < 1024)).all())
        case "index_below:4":
            return bool(((value >= 0) & (value < 4)).all())
        case "index_below:table.shape[0]":
            return bool(((value >= 0) & (value < dims["V"])).all())
    raise AssertionError(f"{task.id}: no such law: {spec.law}")


@every_task
def test_inputs_have_the_workloads_shapes_and_obey_their_laws(task):
    for dims in (dims_of(task, "small"), *odd_dims(task)):
        drawn = draw_inputs(task, dims, np.random.default_rng(3))
        shapes = workload(task, dims, "x").inputs
        assert [(value.shape, value.dtype.name) for value in drawn] == [(array.shape, array.dtype) for array in shapes]
        assert all(value.flags.c_contiguous for value in drawn)
        assert all(admissible(task, dims, spec, value) for spec, value in zip(task.inputs, drawn, strict=True))


@every_task
def test_draws_repeat_by_seed_and_differ_between_seeds(task):
    dims = dims_of(task, "small")
    once, again, other = (draw_inputs(task, dims, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(once, other, strict=True))


def test_inputs_of_one_law_are_drawn_apart():
    x, y = draw_inputs(get_task("L1/add"), {"M": 64, "N": 64}, np.random.default_rng(0))
    assert abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < 0.1


def test_scale_of_normal_is_log_uniform():
    rng = np.random.default_rng(0)
    spread = [draw_inputs(get_task("L1/relu"), {"M": 40, "N": 50}, rng)[0].std() for _ in range(400)]
    assert 0.37 < min(spread) < 0.43
    assert 2.3 < max(spread) < 2.7
    assert abs(np.median(spread) - 1.0) < 0.15  # sqrt(0.4 * 2.5); uniform draws would have 1.45


def test_scale_of_weights_falls_with_the_fan_in():
    rng = np.random.default_rng(0)
    spread = [draw_inputs(get_task("L2/matmul_relu"), {"M": 1, "K": 400, "N": 10}, rng)[1].std() for _ in range(200)]
    assert 0.018 < min(spread) < 0.023  # 0.4 / sqrt(400)
    assert 0.11 < max(spread) < 0.14  # 2.5 / sqrt(400)


def test_shares_and_ranges():
    rng = np.random.default_rng(0)
    _, mask = draw_inputs(get_task("L3/triangle_update"), {"N": 200, "C": 1}, rng)
    assert abs(mask.mean() - 0.8) < 0.02
    (positive,) = draw_inputs(get_task("L1/log"), {"M": 200, "N": 200}, rng)
    assert positive.min() < 0.02
    assert positive.max() > 9.99
    (letters,) = draw_inputs(get_task("L1/nucleotide_onehot"), {"L": 400}, rng)
    assert set(letters) == {0, 1, 2, 3}
    (indices,) = draw_inputs(get_task("L1/one_hot"), {"N": 16384}, rng)
    assert (indices.min(), indices.max()) == (0, 1023)
    _, rows = draw_inputs(get_task("L1/embedding_lookup"), {"V": 3, "D": 1, "N": 100}, rng)
    assert set(rows) == {0, 1, 2}


@stressed
def test_stress_touches_the_inputs_it_names_and_no_other(task):
    dims = dims_of(task, "small")
    plain = draw_inputs(task, dims, np.random.default_rng(5))
    stress = draw_inputs(task, dims, np.random.default_rng(5), stress=True)
    assert (task.stress.scale is None) != (task.stress.uniform is None)
    assert set(task.stress.inputs) <= {spec.name for spec in task.inputs}
    for spec, before, after in zip(task.inputs, plain, stress, strict=True):
        assert after.dtype == before.dtype
        if spec.name not in task.stress.inputs:
            assert np.array_equal(after, before)
        elif task.stress.scale:
            np.testing.assert_array_equal(after, before * np.float32(task.stress.scale))
        else:
            low, high = task.stress.uniform
            assert low < after.min() < after.max() < high
            assert after.max() > 0.9 * high


def test_which_inputs_are_stressed():
    assert {task.id: (task.stress.inputs, task.stress.scale, task.stress.uniform) for task in TASKS if task.stress} == {
        "L1/layernorm": (("x",), 0.001, None),
        "L1/rmsnorm": (("x",), 0.001, None),
        "L1/softmax": (("x",), 64, None),
        "L1/log_softmax": (("x",), 64, None),
        "L1/rsqrt": (("x",), None, (0.0, 1e-4)),
        "L1/cross_entropy": (("logits",), 64, None),
        "L1/cosine_sim": (("x", "y"), 0.001, None),
        "L2/rmsnorm_residual": (("x", "residual"), 0.001, None),
        "L2/layernorm_residual": (("x", "residual"), 0.001, None),
        "L2/qk_softmax": (("q", "k"), 64, None),
        "L2/fused_softmax_cross_entropy": (("logits",), 64, None),
        "L2/sigmoid_bce": (("logits",), 64, None),
        "L3/flash_attention": (("q", "k", "v"), 64, None),
        "L3/multi_head_attention": (("q", "k", "v"), 64, None),
    }


def test_stress_of_a_task_without_a_case_is_refused():
    with pytest.raises(UsageError, match="L1/relu has no stress case"):
        draw_inputs(get_task("L1/relu"), {"M": 2, "N": 2}, np.random.default_rng(0), stress=True)


@every_task
def test_variant_is_new_bounded_and_of_the_tables_odd_factors(task):
    tables = [dims_of(task, size) for size in ("small", "medium", "large")]
    small, medium, _ = tables
    most = _bytes(workload(task, medium, "medium"))
    rng = np.random.default_rng(11)
    drawn = [draw_variant_dims(task, rng) for _ in range(200)]
    assert len({tuple(dims.values()) for dims in drawn}) >= (2 if len(task.dims) == 1 else 8)
    for dims in drawn:
        assert dims not in tables
        assert _bytes(workload(task, dims, "variant")) <= 4 * most  # raises where an extent is out of range
        for name, value in dims.items():
            assert small[name] <= value <= 4 * medium[name]
            assert _odd_factor(value) in (_odd_factor(small[name]), _odd_factor(medium[name]))


@given(seed=st.integers(0, 2**64 - 1), number=st.integers(0, 44))
@settings(max_examples=200, deadline=None)
def test_variant_never_fails_and_repeats_by_seed(seed, number):
    task = TASKS[number]
    once, again = (draw_variant_dims(task, np.random.default_rng(seed)) for _ in range(2))
    assert once == again
    assert once not in [dims_of(task, size) for size in ("small", "medium", "large")]


def test_a_drawn_variant_is_the_callers_to_keep():
    task = get_task("L1/one_hot")
    for _ in range(20):
        draw_variant_dims(task, np.random.default_rng(0))["N"] = -1
    assert draw_variant_dims(task, np.random.default_rng(0))["N"] > 0


@every_task
def test_floor_is_positive_and_below_the_inputs(task):
    inputs = draw_inputs(task, dims_of(task, "small"), np.random.default_rng(0))
    least = floor(task, inputs)
    assert 0 < least.bytes_read <= sum(value.nbytes for value in inputs)
    assert type(least.bytes_read) is int
    assert type(least.flops) is int
    assert least.flops > 0 or task.id in ("L1/embedding_lookup", "L1/one_hot", "L1/nucleotide_onehot")
    if task.precision == "dot":
        assert least.flops > sum(value.size for value in inputs)


@pytest.mark.parametrize(
    ("id", "bytes_read", "flops"),
    [
        ("L1/relu", 4 * 512 * 512, 512 * 512),
        ("L1/reduce_sum", 4 * 512 * 256, 512 * 255),
        ("L1/mse_loss", 8 * 256 * 128, 2 * 256 * 128 - 256),
        ("L1/matmul", 8 * 256 * 256, 2 * 256**3),
        ("L1/one_hot", 4 * 128, 0),
        ("L2/swiglu", 4 * (128 * 256 + 2 * 256 * 512), 4 * 128 * 256 * 512),
        ("L2/pairwise_distance", 4 * 64 * 16, 64 * 63 * 16),
        ("L3/flash_attention", 12 * 128 * 32, 4 * 128 * 128 * 32),
        ("L3/gated_mlp", 4 * (64 * 128 + 3 * 128 * 256), 6 * 64 * 128 * 256),
        (
            "L3/transformer_block",
            4 * (32 * 64 + 4 * 64 * 32 + 64 * 64),
            # q and k: 4 N D E, scores: 2 N N E, v: 2 N D E, weights: 2 N N E, wo: 2 N E D, w_ff: 2 N D D
            8 * 32 * 64 * 32 + 4 * 32 * 32 * 32 + 2 * 32 * 64 * 64,
        ),
    ],
)
def test_floors_by_hand(id, bytes_read, flops):
    task = get_task(id)
    least = floor(task, draw_inputs(task, dims_of(task, "small"), np.random.default_rng(0)))
    assert (least.bytes_read, least.flops) == (bytes_read, flops)


def test_floor_of_a_lookup_counts_each_row_once():
    table = np.zeros((100, 10), np.float32)
    assert floor(get_task("L1/embedding_lookup"), (table, np.array([7, 7, 3], np.int32))).bytes_read == 2 * 40 + 12


def test_floor_of_the_triangle_counts_terms_that_both_masks_let_through():
    task = get_task("L3/triangle_update")
    pair, mask = draw_inputs(task, {"N": 6, "C": 5}, np.random.default_rng(0))
    mask[:, 2] = 0
    terms = sum(mask[i, k] * mask[k, j] for i in range(6) for j in range(6) for k in range(6))
    assert floor(task, (pair, mask)).flops == 2 * 5 * terms
    assert floor(task, (pair, np.ones_like(mask))).flops == 2 * 6**3 * 5
    assert floor(task, (pair, np.zeros_like(mask))).flops == 0


def test_floor_of_the_block_takes_the_cheaper_order():
    """With a head wider than the model, wq wk^T first is cheaper than q and k."""
    task = get_task("L3/transformer_block")
    dims = {"N": 64, "D": 2, "E": 256}
    inputs = draw_inputs(task, dims, np.random.default_rng(0))
    assert floor(task, inputs).flops < 8 * 64 * 2 * 256


def _bytes(shapes):
    return sum(int(np.prod(array.shape)) * 4 for array in (*shapes.inputs, shapes.output))


def _odd_factor(value):
    while value % 2 == 0:
        value //= 2
    return value
