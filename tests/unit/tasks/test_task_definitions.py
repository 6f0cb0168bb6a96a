"""The definitions against the table of tasks, the registry, shapes, and the door that leaves JAX alone."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from pallas_evo.errors import UnknownTask, UsageError
from pallas_evo.tasks import dims_of, get_task, load_tasks, odd_dims, sizes_table, workload

TABLE = json.loads((Path(__file__).parent / "tasks_table.json").read_text())
TASKS = load_tasks()
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)


@pytest.mark.parametrize(("row", "task"), list(zip(TABLE, TASKS, strict=True)), ids=[row["id"] for row in TABLE])
def test_definition_says_what_the_table_says(row, task):
    assert {
        "id": task.id,
        "number": task.number,
        "level": task.level,
        "category": task.category,
        "formula": task.formula,
        "precision": task.precision,
        "note": task.note,
        "stress": task.stress.text if task.stress else None,
        "sizes": sizes_table(task),
        "inputs": [
            {"name": spec.name, "dtype": spec.dtype, "law": spec.law, "shape": list(spec.shape)} for spec in task.inputs
        ],
        "dims": {
            name: {"min": d.min, "max": d.max, "small": d.small, "medium": d.medium, "large": d.large}
            for name, d in task.dims.items()
        },
    } == {key: row[key] for key in row if key != "output"}
    # The table calls the head size `d`, the width of the scan `m` and the sequence's length `N` in outputs.
    letters = row["output"].removesuffix(" f32").strip("()").rstrip(",").replace("d", "D").replace("L-m+1", "L-T+1")
    if row["id"] == "L1/nucleotide_onehot":
        letters = letters.replace("N", "L")
    assert letters == ",".join(str(entry) for entry in task.output_shape)
    assert (task.output_dtype, task.version) == ("float32", 1)


def test_numbers_and_ids_are_unique_and_in_order():
    assert [task.number for task in TASKS] == list(range(1, 46))
    assert len({task.id for task in TASKS}) == 45
    assert [sum(task.level == level for task in TASKS) for level in (1, 2, 3)] == [27, 13, 5]


@every_task
def test_task_is_found_by_id_and_survives_a_pipe(task):
    assert get_task(task.id) is task
    assert pickle.loads(pickle.dumps(task)) == task


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("L1/rellu", "L1/relu"), ("relu", "L1/relu"), ("L2/softmax", "L1/softmax"), ("L1/SWIGLU", "L2/swiglu")],
)
def test_unknown_task_names_the_nearest(wrong, nearest):
    with pytest.raises(UnknownTask) as raised:
        get_task(wrong)
    assert nearest in str(raised.value)
    assert repr(wrong) in str(raised.value)


@pytest.mark.parametrize("wrong", ["", "/", "x" * 500, "L1/", "\x00"])
def test_unknown_task_whatever_was_typed(wrong):
    with pytest.raises(UnknownTask, match="Nearest: L"):
        get_task(wrong)


@every_task
@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_workload_has_the_tables_shapes(task, size):
    shapes = workload(task, dims_of(task, size), size)
    assert [list(array.shape) for array in shapes.inputs] == sizes_table(task)[size]
    assert [array.dtype for array in shapes.inputs] == [spec.dtype for spec in task.inputs]
    assert (shapes.task_id, shapes.label, shapes.output.dtype) == (task.id, size, "float32")


def test_output_extents():
    scan = get_task("L2/pwm_scan")
    assert workload(scan, {"L": 256, "T": 8}, "small").output.shape == (249,)
    assert workload(scan, {"L": 9, "T": 9}, "odd").output.shape == (1,)
    assert workload(get_task("L1/one_hot"), {"N": 7}, "odd").output.shape == (7, 1024)
    assert workload(get_task("L3/triangle_update"), {"N": 7, "C": 3}, "odd").output.shape == (7, 7, 3)


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"L": 8}, "expected the dimensions L, T; got L"),
        ({"L": 8, "T": 8, "K": 1}, "got L, T, K"),
        ({}, "got none"),
        ({"L": 0, "T": 1}, "expected L from 1 to 65536; got 0"),
        ({"L": 100, "T": 65}, "expected T from 1 to 64; got 65"),
        ({"L": 7, "T": 8}, "expected at least one output for L-T\\+1"),
    ],
)
def test_dims_that_do_not_fit_are_refused(dims, said):
    with pytest.raises(UsageError, match=said):
        workload(get_task("L2/pwm_scan"), dims, "odd")


def test_unknown_size_is_refused():
    with pytest.raises(UsageError, match="small, medium, large; got 'huge'"):
        dims_of(get_task("L1/relu"), "huge")


@every_task
def test_odd_dims_are_valid_small_and_varied(task):
    sizes = odd_dims(task)
    assert len(sizes) >= 3
    assert len({tuple(dims.items()) for dims in sizes}) == len(sizes)
    primes, ones = sizes[0], sizes[1]
    assert all(value > 2 and all(value % by for by in range(2, value)) for value in primes.values())
    assert len(set(primes.values())) == len(primes)
    assert set(ones.values()) == {1}
    for dims in sizes:
        shapes = workload(task, dims, "odd-1")
        assert all(len(array.shape) and _elements(array.shape) < 1e6 for array in (*shapes.inputs, shapes.output))


def test_import_leaves_jax_alone():
    program = (
        "import sys; import pallas_evo.tasks as t; [t.sizes_table(task) for task in t.load_tasks()];"
        "import numpy; t.draw_variant_dims(t.get_task('L1/relu'), numpy.random.default_rng());"
        "print([name for name in sys.modules if name.split('.')[0] in ('jax', 'jaxlib', 'shinka', 'sqlalchemy')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def _elements(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total
