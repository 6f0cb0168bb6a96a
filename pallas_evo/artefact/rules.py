"""The allow-lists: every operation and attribute that an honest export carries, and nothing else.

Collected from what JAX 0.10.2 and 0.12 emit for Pallas on Triton. An attribute's value is held against a pattern that
must match all of its printed form. What the executor cannot run is not listed, so that whatever is accepted here can
be judged without a GPU (a test holds the two lists together).
"""

from __future__ import annotations

import re

TRITON_CALL = "__gpu$xla.gpu.triton"
"""What JAX calls `CUSTOM_CALL_TARGET_NAME`; a constant here, because reading it would import Pallas."""

MODULE_BYTES = 16 << 20
"""Largest artefact that is parsed. The tracer's own cap is lower; this one protects a validator that is used alone."""

NESTING = 48
"""Deepest nesting of regions. Honest kernels reach about ten."""

TENSOR_ELEMENTS = (1 << 31) - 1
"""Largest array outside the kernels: Pallas indexes with 32-bit integers."""

ELEMENT_BYTES: dict[str, int] = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1,
    "ui64": 8, "ui32": 4, "ui16": 2, "ui8": 1,
}  # fmt: skip
"""MLIR element type -> bytes in memory."""

NUMPY_TO_MLIR: dict[str, str] = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "bool": "i1",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "ui64", "uint32": "ui32", "uint16": "ui16", "uint8": "ui8",
}  # fmt: skip

FLOATS = frozenset({"f64", "f32", "f16", "bf16"})

_INT = r"-?\d+ : i(32|64)"
_INTS = r"array<i64(: -?\d+(, -?\d+)*)?>"
_INTS32 = r"array<i32(: -?\d+(, -?\d+)*)?>"
ANY = "any"
"""A value that a rule of its own checks."""


def matches(pattern: str, value: object) -> bool:
    """Whether an attribute's whole printed form fits `pattern`; a large one is printed only where it is looked at."""
    return pattern == ANY or re.fullmatch(pattern, str(value)) is not None


MODULE_ATTRIBUTES: dict[str, str] = {
    "sym_name": ANY,
    "mhlo.num_partitions": "1 : i32",
    "mhlo.num_replicas": "1 : i32",
    "jax.uses_shape_polymorphism": "false",
}
FUNCTION_ATTRIBUTES: dict[str, str] = {
    "sym_name": ANY,
    "function_type": ANY,
    "sym_visibility": '"(public|private)"',
    "arg_attrs": ANY,
    "res_attrs": ANY,
}

# Outside the kernels. MOVES take any value; COMPUTES only values that no input reaches; FREE move no byte.
MOVES: dict[str, dict[str, str]] = {
    "stablehlo.transpose": {"permutation": _INTS},
    "stablehlo.reverse": {"dimensions": _INTS},
    "stablehlo.slice": {"start_indices": _INTS, "limit_indices": _INTS, "strides": _INTS},
    "stablehlo.dynamic_slice": {"slice_sizes": _INTS},
    "stablehlo.pad": {"edge_padding_low": _INTS, "edge_padding_high": _INTS, "interior_padding": _INTS},
    "stablehlo.concatenate": {"dimension": _INT},
    "stablehlo.broadcast_in_dim": {"broadcast_dimensions": _INTS},
    "stablehlo.convert": {},
}
FREE: dict[str, dict[str, str]] = {
    "stablehlo.reshape": {},
    "stablehlo.optimization_barrier": {},
    "func.call": {"callee": ANY},
    "func.return": {},
}
CONSTANTS: dict[str, dict[str, str]] = {
    "stablehlo.constant": {"value": ANY},
    "stablehlo.iota": {"iota_dimension": _INT},
}
COMPUTES: dict[str, dict[str, str]] = {
    f"stablehlo.{name}": {}
    for name in (
        "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "negate", "abs", "sign",
        "and", "or", "xor", "not", "select", "clamp", "floor", "ceil",
        "shift_left", "shift_right_logical", "shift_right_arithmetic",
        "power", "sqrt", "rsqrt", "exponential", "log", "tanh", "sine", "cosine",
    )
}  # fmt: skip
COMPUTES["stablehlo.compare"] = {
    "comparison_direction": r"#stablehlo<comparison_direction (EQ|NE|LT|LE|GT|GE)>",
    "compare_type": r"#stablehlo<comparison_type (FLOAT|TOTALORDER|SIGNED|UNSIGNED)>",
}
for _name in ("power", "sqrt", "rsqrt", "exponential", "log", "tanh", "sine", "cosine"):
    COMPUTES[f"stablehlo.{_name}"] = {
        "result_accuracy": r"#stablehlo\.result_accuracy<mode = #stablehlo.result_accuracy_mode<DEFAULT>>"
    }
CALL_ATTRIBUTES: dict[str, str] = {
    "call_target_name": ANY,
    "mhlo.backend_config": ANY,
    "api_version": "4 : i32",
    "has_side_effect": "false",
    "operand_layouts": ANY,
    "result_layouts": ANY,
    "output_operand_aliases": ANY,
    "called_computations": r"\[\]",
    "backend_config": r'""|\{\}',
}
GLUE: dict[str, dict[str, str]] = {**MOVES, **FREE, **CONSTANTS, **COMPUTES, "stablehlo.custom_call": CALL_ATTRIBUTES}

CONFIG_KEYS = frozenset({"name", "ir", "num_stages", "num_warps", "grid_x", "grid_y", "grid_z", "debug"})
CONFIG_DROPPED = frozenset({"serialized_metadata"})
"""Keys of a Triton call's configuration; the dropped ones say nothing about what runs."""

ADVICE: dict[str, str] = {
    "scatter": "x.at[...].set and x.at[...].add outside a kernel lower to scatter; use jnp.pad or jnp.concatenate, or "
    "store from the kernel",
    "gather": "indexing with an array outside a kernel lowers to gather; load the rows inside the kernel",
    "dynamic_gather": "indexing with an array outside a kernel lowers to gather; load the rows inside the kernel",
    "dynamic_update_slice": "use jnp.pad or jnp.concatenate, or store from the kernel",
    "dot_general": "move the product into the Pallas kernel",
    "dot": "move the product into the Pallas kernel",
    "convolution": "move the convolution into the Pallas kernel",
    "reduce": "move the reduction into the Pallas kernel",
    "reduce_window": "move the reduction into the Pallas kernel",
    "sort": "move the sort into the Pallas kernel",
    "while": "loop inside the Pallas kernel, or unroll the loop in Python",
    "case": "branch inside the Pallas kernel",
    "if": "branch inside the Pallas kernel",
    "rng_bit_generator": "a kernel must not draw random numbers",
    "rng": "a kernel must not draw random numbers",
    "bitcast_convert": "bitcast inside the Pallas kernel",
}
"""StableHLO operation -> what to do instead."""

# Inside the kernels.
_FASTMATH = {"fastmath": r"#arith\.fastmath<none>"}
# Numbers and splats: a table of values inside a kernel is no constant that Pallas emits.
_NUMBER = r"-?(0x[0-9A-F]+|\d+(\.\d+)?(E[+-]?\d+|e[+-]?\d+)?)"
_SCALAR = rf"true|false|{_NUMBER} : [a-z0-9]+|dense<(true|false|{_NUMBER})> : tensor<[x0-9]+[a-z][a-z0-9]*>"
_OVERFLOW = {"overflowFlags": r"#arith\.overflow<none>"}
_MEMORY = {
    "cache": r"[1-7] : i32",
    "evict": r"[1-3] : i32",
    # One attribute in place of the two since JAX 0.12's Triton.
    "cachePolicy": r"#tt\.cache_policy<cache_modifier = (none|c[agsv]|w[bt]), eviction_policy = "
    "(normal|evict_first|evict_last)>",
}
TRITON: dict[str, dict[str, str]] = {
    "tt.func": {
        "sym_name": ANY,
        "function_type": ANY,
        "sym_visibility": '"public"',
        "arg_attrs": r"\[(\{(tt\.divisibility = (16|32) : i32)?\}(, )?)*\]",
        "res_attrs": r"\[\]",
        "noinline": "false",
    },
    "tt.return": {},
    "tt.get_program_id": {"axis": "[0-2] : i32"},
    "tt.get_num_programs": {"axis": "[0-2] : i32"},
    "tt.make_range": {"start": r"\d+ : i32", "end": r"\d+ : i32"},
    "tt.splat": {},
    "tt.broadcast": {},
    "tt.expand_dims": {"axis": r"\d : i32"},
    "tt.reshape": {},
    "tt.trans": {"order": _INTS32},
    "tt.join": {},
    "tt.split": {},
    "tt.addptr": {},
    "tt.bitcast": {},
    "tt.fp_to_fp": {"rounding": "[01] : i32"},
    "tt.load": {
        **_MEMORY,
        "isVolatile": "true|false",
        "operandSegmentSizes": "array<i32: 1, [01], [01]>",
        "boundaryCheck": "array<i32>",
    },
    "tt.store": {**_MEMORY, "boundaryCheck": "array<i32>"},
    "tt.atomic_rmw": {"atomic_rmw_op": r"\d+ : i32", "sem": "[1-4] : i32", "scope": "[1-3] : i32"},
    "tt.atomic_cas": {"sem": "[1-4] : i32", "scope": "[1-3] : i32"},
    "tt.dot": {"inputPrecision": "[0-2] : i32", "maxNumImpreciseAcc": "0 : i32"},
    "tt.reduce": {"axis": r"\d : i32"},
    "tt.reduce.return": {},
    "tt.scan": {"axis": r"\d : i32", "reverse": "true|false"},
    "tt.scan.return": {},
    "tt.extern_elementwise": {"libname": '""', "libpath": '""', "pure": "true", "symbol": ANY},
    "scf.for": {},
    "scf.if": {},
    "scf.while": {},
    "scf.yield": {},
    "scf.condition": {},
    "arith.constant": {"value": _SCALAR},
    "arith.cmpf": {"predicate": r"\d+ : i64", **_FASTMATH},
    "arith.cmpi": {"predicate": r"\d : i64"},
    "arith.select": {},
    "arith.bitcast": {},
    **{f"arith.{name}": _OVERFLOW for name in ("addi", "subi", "muli", "shli", "trunci")},
    **{
        f"arith.{name}": {}
        for name in (
            "divsi", "divui", "remsi", "remui", "andi", "ori", "xori", "shrsi", "shrui", "maxsi", "maxui",
            "minsi", "minui", "extsi", "extui", "fptosi", "fptoui", "sitofp", "uitofp",
        )
    },
    **{
        f"arith.{name}": _FASTMATH
        for name in (
            "addf", "subf", "mulf", "divf", "remf", "negf", "maximumf", "minimumf", "maxnumf", "minnumf",
            "extf", "truncf",
        )
    },
    **{
        f"math.{name}": _FASTMATH
        for name in (
            "absf", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh", "erf",
            "exp", "exp2", "expm1", "floor", "fpowi", "log", "log1p", "log2", "powf", "rsqrt", "sin", "sinh",
            "sqrt", "tan", "tanh",
        )
    },
    "math.absi": {},
    "math.ctlz": {},
    "math.ctpop": {},
}  # fmt: skip
"""Triton operation -> its attributes."""

TRITON_HINTS: dict[str, str] = {
    "tt.divisibility": r"dense<(\d+|\[[\d, ]*\])> : (tensor|vector)<\d+xi32>|\d+ : i32",
    "tt.contiguity": r"dense<(\d+|\[[\d, ]*\])> : (tensor|vector)<\d+xi32>|\d+ : i32",
}
"""What `pl.multiple_of` and `plgpu.max_contiguous` leave on an operation inside a kernel."""

TRITON_ADVICE: dict[str, str] = {
    "tt.elementwise_inline_asm": "inline assembly can touch any memory; write the arithmetic with jax.numpy",
    "tt.int_to_ptr": "an address made from an integer cannot be checked; index the Ref",
    "tt.ptr_to_int": "an address must not become a value; index the Ref",
    "tt.print": "remove pl.debug_print",
    "tt.assert": "remove pl.debug_check",
    "gpu.barrier": "remove plgpu.debug_barrier",
    "tt.call": "a kernel is one function",
}

POINTER_OPERATIONS = frozenset(
    {"tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast", "tt.join",
     "tt.split", "arith.select", "scf.for", "scf.if", "scf.while"}
)  # fmt: skip
"""Operations that may give a pointer: each one's result points where one of its operands does."""

COMBINERS = frozenset({"tt.reduce", "tt.scan"})
"""Operations whose region combines two elements; it may only do arithmetic."""


def combines(name: str) -> bool:
    """Whether an operation may stand in a combiner's region."""
    return name.startswith(("arith.", "math.")) or name in (
        "tt.reduce.return",
        "tt.scan.return",
        "tt.extern_elementwise",
        "tt.fp_to_fp",
        "tt.bitcast",
    )


LIBDEVICE = frozenset(
    "__nv_" + name
    for name in (
        "abs", "acos", "acosf", "acosh", "acoshf", "asin", "asinf", "asinh", "asinhf", "atan", "atan2", "atan2f",
        "atanf", "atanh", "atanhf", "cbrt", "cbrtf", "ceil", "ceilf", "clz", "clzll", "cos", "cosf", "cosh", "coshf",
        "exp", "exp2", "exp2f", "expf", "expm1", "expm1f", "fabs", "fabsf", "floor", "floorf", "llabs", "log",
        "log1p", "log1pf", "log2", "log2f", "logf", "nextafter", "nextafterf", "popc", "popcll", "pow", "powf",
        "powi", "powif", "rsqrt", "rsqrtf", "sin", "sinf", "sinh", "sinhf", "sqrt", "sqrtf", "tan", "tanf", "tanh",
        "tanhf",
    )
)  # fmt: skip
"""The math functions of NVIDIA's libdevice that Pallas calls."""

GLUE_TYPE = re.compile(r"tensor<((?:\d{1,10}x){0,8})([a-z0-9]+)>")
TRITON_TYPE = re.compile(
    r"tensor<((?:\d{1,10}x){1,8})(?:!tt\.ptr<([a-z0-9]+)>|([a-z0-9]+))>|!tt\.ptr<([a-z0-9]+)>|([a-z0-9]+)"
)
ALIAS = re.compile(
    r"#stablehlo\.output_operand_alias<output_tuple_indices = \[(\d{0,4})\], "
    r"operand_index = (\d{1,4}), operand_tuple_indices = \[\]>"
)
