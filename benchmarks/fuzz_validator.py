"""Fuzz the artefact validator: `python benchmarks/fuzz_validator.py [--inputs N] [--seed S] [--out FILE]`.

At least 20,000 inputs by default. Half are well-formed modules: an honest program, printed, with one operation,
attribute, operand, type or number changed, in the StableHLO or in the Triton IR, by mutators that aim at the rules.
The other half are bytes: bytecode with flips, cuts, splices and repeats, and text with pieces replaced.

Every input goes through a child process with a deadline, so that crashes and hangs are counted. What is accepted is
checked again: it must print as it was hashed, hold nothing outside the allow-lists, and be accepted again unchanged.

Writes JSON: inputs by kind, counts by reason, reasons never hit, crashes, hangs, exceptions, and accepted mutants.
"""

# ruff: noqa: E501  (one mutation a line reads better than a wrapped table)

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit" / "artefact")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import artefact_programs as programs  # noqa: E402

from pallas_evo.artefact import validate_jailed, wire  # noqa: E402
from pallas_evo.artefact.jailed import start_validator  # noqa: E402
from pallas_evo.jail import Ended, level  # noqa: E402
from pallas_evo.reasons import REASONS  # noqa: E402
from pallas_evo.types import Artefact, Rejection, Workload  # noqa: E402

Mutator = Callable[[random.Random, str], str]
DEADLINE_S = 10.0
UNJAILED = level() == "none"
LIMITS = dataclasses.replace(programs.LIMITS, deadline_s=DEADLINE_S)

# Insertions before a kernel's return: one for each way that a kernel can do what it must not.
_SCALARS = "    %zf = arith.constant 1.0 : f32\n    %zt = arith.constant true\n    %zi = arith.constant 7 : i32\n"
KERNEL_INSERTS = (
    "    %ea = arith.constant 64 : i64\n    %eb = tt.int_to_ptr %ea : i64 -> !tt.ptr<f32>\n    tt.store %eb, %zf : !tt.ptr<f32>\n",
    "    %ea = tt.ptr_to_int %arg0 : !tt.ptr<f32> -> i64\n",
    "    tt.store %arg0, %zf : !tt.ptr<f32>\n",
    "    %ea = tt.addptr %arg0, %zi : !tt.ptr<f32>, i32\n    tt.store %ea, %zf : !tt.ptr<f32>\n",
    "    %ea = tt.atomic_rmw fadd, acq_rel, gpu, %arg0, %zf, %zt : (!tt.ptr<f32>, f32, i1) -> f32\n",
    "    %ea = tt.atomic_cas relaxed, gpu, %arg0, %zf, %zf : (!tt.ptr<f32>, f32, f32) -> f32\n",
    "    %ea = tt.elementwise_inline_asm \"trap;\" {constraints = \"=f,f\", packed_element = 1 : i32, pure = true} %zf : f32 -> f32\n",
    "    %ea = tt.extern_elementwise %zf {libname = \"\", libpath = \"\", pure = true, symbol = \"system\"} : (f32) -> f32\n",
    "    %ea = tt.extern_elementwise %zf {libname = \"x\", libpath = \"x.bc\", pure = true, symbol = \"__nv_expf\"} : (f32) -> f32\n",
    "    tt.print \" x \" {hex = false, isSigned = array<i32: 0>} : %zf : f32\n",
    "    tt.assert %zt, \"x\" : i1\n",
    "    \"gpu.barrier\"() : () -> ()\n",
    "    \"evil.op\"() : () -> ()\n",
    "    %ea = tt.make_range {end = 4194304 : i32, start = 0 : i32} : tensor<4194304xi32>\n",
    "    %ea = arith.constant dense<0> : tensor<24xi32>\n",
    "    %ea = arith.constant dense<[3, 4]> : tensor<2xi32>\n",
    "    %ea = tt.bitcast %arg0 : !tt.ptr<f32> -> !tt.ptr<i64>\n",
    "    %ea = arith.select %zt, %arg0, %arg1 : !tt.ptr<f32>\n    tt.store %ea, %zf : !tt.ptr<f32>\n",
    "    scf.if %zt {\n    tt.store %arg0, %zf : !tt.ptr<f32>\n    }\n",
    "    %ea = tt.load %arg0 {evil = 1 : i32} : !tt.ptr<f32>\n",
    "    %ea = arith.addf %zf, %zf fastmath<fast> : f32\n",
)  # fmt: skip
_X = "tensor<16x16xf32>"
GLUE_INSERTS = (
    f"    %9 = stablehlo.add %arg0, %arg0 : {_X}\n",
    f"    %9 = stablehlo.multiply %arg0, %arg0 : {_X}\n",
    f"    %9 = stablehlo.exponential %arg0 : {_X}\n",
    f"    %9 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [1] x [0] : ({_X}, {_X}) -> {_X}\n",
    f"    %9 = stablehlo.transpose %arg0, dims = [1, 0] : ({_X}) -> {_X}\n",
    f"    %9 = stablehlo.convert %arg0 : ({_X}) -> tensor<16x16xi32>\n",
    f"    %9 = stablehlo.bitcast_convert %arg0 : ({_X}) -> tensor<16x16xi32>\n",
    f"    %9 = stablehlo.broadcast_in_dim %arg0, dims = [1, 2] : ({_X}) -> tensor<64x16x16xf32>\n",
    f"    %9 = stablehlo.custom_call @Sharding(%arg0) : ({_X}) -> {_X}\n",
    f"    %9 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%arg0) {{has_side_effect = true}} : ({_X}) -> {_X}\n",
    f"    %9 = stablehlo.sort %arg0 : {_X}\n",
    f"    %9 = \"stablehlo.sort\"(%arg0) <{{dimension = 0 : i64, is_stable = false}}> ({{\n ^bb0(%u: tensor<f32>, %v: tensor<f32>):\n %w = stablehlo.compare LT, %u, %v : (tensor<f32>, tensor<f32>) -> tensor<i1>\n stablehlo.return %w : tensor<i1>\n }}) : ({_X}) -> {_X}\n",
    "    %9 = stablehlo.iota dim = 0 : tensor<65536xf32>\n",
    "    %9 = stablehlo.iota dim = 0 : tensor<4000000000xi8>\n",
    "    %9 = stablehlo.create_token : !stablehlo.token\n",
    f"    %9 = stablehlo.constant dense<1.0> : {_X}\n    %8 = stablehlo.add %9, %arg0 : {_X}\n",
    f"    %9 = stablehlo.optimization_barrier %arg0 {{evil = 1 : i32}} : {_X}\n",
    f"    %9 = func.call @main(%arg0) : ({_X}) -> {_X}\n",
)  # fmt: skip
ATTRIBUTES = (
    "evil = 1 : i32", "mhlo.frontend_attributes = {_xla_compute_type = \"host\"}", "mhlo.sharding = \"{replicated}\"",
    "xla.something = true", "mhlo.memory_kind = \"pinned_host\"", "tt.divisibility = dense<16> : tensor<1xi32>", "noinline",
)  # fmt: skip
ARGUMENT_ATTRIBUTES = (
    "tf.aliasing_output = 0 : i32",
    "jax.buffer_donor = true",
    'mhlo.sharding = "{replicated}"',
    'mhlo.layout_mode = "auto"',
)
NUMBERS = ("0", "1", "-1", "2", "3", "7", "15", "16", "17", "64", "100", "4096", "65536", "2147483647", "99999999999")
TYPES = ("f32", "f16", "bf16", "f64", "i1", "i8", "i32", "i64", "index", "ui32", "complex<f32>", "f8E4M3FN")


def replaced(rng: random.Random, text: str, pattern: str, choose: Callable[[re.Match[str]], str]) -> str:
    """`text` with one match of `pattern`, drawn at random, replaced."""
    matches = list(re.finditer(pattern, text))
    if not matches:
        return text
    found = rng.choice(matches)
    return text[: found.start()] + choose(found) + text[found.end() :]


def number(rng: random.Random, text: str) -> str:
    return replaced(rng, text, r"(?<![\w%.])-?\d+(?![\w.])", lambda _: rng.choice(NUMBERS))


def element_type(rng: random.Random, text: str) -> str:
    return replaced(rng, text, r"\b(f32|i32|i1|bf16)\b", lambda _: rng.choice(TYPES))


def every_element_type(rng: random.Random, text: str) -> str:
    return re.sub(r"\bf32\b", rng.choice(TYPES), text)


def dimension(rng: random.Random, text: str) -> str:
    size = rng.choice(("1", "2", "3", "32", "15", "2097152", "0"))
    old = rng.choice(re.findall(r"\b(\d+)x", text) or ["16"])
    if rng.random() < 0.5:
        return re.sub(rf"\b{old}x", f"{size}x", text)
    return replaced(rng, text, rf"\b{old}x", lambda _: f"{size}x")


def operand(rng: random.Random, text: str) -> str:
    names = sorted(set(re.findall(r"%\w+", text)))
    return replaced(rng, text, r"%\w+", lambda _: rng.choice(names)) if names else text


def operation(rng: random.Random, text: str) -> str:
    names = sorted(set(re.findall(r"\b(?:stablehlo|tt|arith|math|scf)\.\w+", text)))
    more = (
        "arith.subf",
        "arith.mulf",
        "arith.divf",
        "math.exp",
        "tt.assert",
        "llvm.add",
        "stablehlo.sine",
        "arith.remf",
    )
    return replaced(rng, text, r"\b(?:stablehlo|tt|arith|math|scf)\.\w+", lambda _: rng.choice([*names, *more]))


def attribute(rng: random.Random, text: str) -> str:
    """One attribute more, in an attribute dictionary or before an operation's type."""
    what = rng.choice(ATTRIBUTES)
    if rng.random() < 0.3:
        return replaced(rng, text, r"\{(?=\w[\w.]* = )", lambda _: "{" + what + ", ")
    return replaced(rng, text, r"(?m)(?<=[\w)]) : (?=\(?(tensor|!tt|i\d|f\d))", lambda _: f" {{{what}}} : ")


def drop_attribute(rng: random.Random, text: str) -> str:
    return replaced(rng, text, r", \w[\w.]* = [^,{}<>\[\]]+(?=[,}])", lambda _: "")


def drop_line(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def drop_stores(rng: random.Random, text: str) -> str:
    return "\n".join(line for line in text.split("\n") if "tt.store" not in line and "tt.atomic" not in line)


def store_elsewhere(rng: random.Random, text: str) -> str:
    count = len(re.findall(r"%arg\d+: !tt", text))
    names = {f"%arg{i}": f"%arg{rng.randrange(max(count, 1))}" for i in range(count)}
    head, brace, body = text.partition(") {\n")
    return head + brace + re.sub(r"%arg\d+\b", lambda m: names.get(m.group(), m.group()), body)


def insert_in_kernel(rng: random.Random, text: str) -> str:
    return text.replace("    tt.return", _SCALARS + rng.choice(KERNEL_INSERTS) + "    tt.return", 1)


def nest(rng: random.Random, text: str) -> str:
    depth = rng.choice((10, 60, 300))
    return text.replace(
        "    tt.return", _SCALARS + "    scf.if %zt {\n" * depth + "    }\n" * depth + "    tt.return", 1
    )


def insert_in_glue(rng: random.Random, text: str) -> str:
    return text.replace("    %0 =", rng.choice(GLUE_INSERTS) + "    %0 =", 1)


def route_around(rng: random.Random, text: str) -> str:
    return re.sub(r"return %\w+", "return %arg0", text, count=1)


def argument_attribute(rng: random.Random, text: str) -> str:
    return re.sub(r"(%arg0: tensor<[^>]*>)", rf"\1 {{{rng.choice(ARGUMENT_ATTRIBUTES)}}}", text, count=1)


def module_attribute(rng: random.Random, text: str) -> str:
    return text.replace("attributes {", f"attributes {{{rng.choice(ATTRIBUTES)}, ", 1)


def alias(rng: random.Random, text: str) -> str:
    entry = f"#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = {rng.choice((0, 0, 1, 9))}, operand_tuple_indices = []>"
    return text.replace("operand_layouts", f"output_operand_aliases = [{entry}], operand_layouts", 1)


def layout(rng: random.Random, text: str) -> str:
    return replaced(rng, text, r"dense<\[1, 0\]>", lambda _: "dense<[0, 1]>")


def call_target(rng: random.Random, text: str) -> str:
    return text.replace(
        "@__gpu$xla.gpu.triton", rng.choice(("@triton_kernel_call", "@Sharding", "@evil", "@cu_solver")), 1
    )


def launch(rng: random.Random, text: str) -> str:
    return replaced(
        rng, text, r"(grid_[xyz]|num_warps|num_stages) = \d+", lambda m: f"{m.group(1)} = {rng.choice(NUMBERS)}"
    )


def config_key(rng: random.Random, text: str) -> str:
    return text.replace(
        "debug = false", rng.choice(("num_ctas = 2 : i32", "debug = 3 : i32", "cluster_x = 2 : i32, debug = true")), 1
    )


def swap_lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    i = rng.randrange(len(lines) - 1)
    lines[i], lines[i + 1] = lines[i + 1], lines[i]
    return "\n".join(lines)


def repeat(rng: random.Random, text: str) -> str:
    """More of one line than the cap on operations."""
    many = "".join(f"    %r{i} = arith.constant {i} : i32\n" for i in range(rng.choice((100, 25_000))))
    return text.replace("    tt.return", many + "    tt.return", 1)


KERNEL_MUTATORS: dict[Mutator, int] = {
    number: 3, element_type: 2, every_element_type: 1, dimension: 2, operand: 4, operation: 4, attribute: 3, drop_line: 2,
    drop_stores: 1, store_elsewhere: 1, insert_in_kernel: 6, swap_lines: 1, nest: 1,
}  # fmt: skip
MODULE_MUTATORS: dict[Mutator, int] = {
    number: 1, every_element_type: 1, dimension: 1, operand: 2, operation: 2, attribute: 1, drop_attribute: 1, insert_in_glue: 5,
    route_around: 1, argument_attribute: 1, module_attribute: 1, alias: 2, layout: 1, call_target: 1, launch: 2,
    config_key: 1,
}  # fmt: skip


def draw(rng: random.Random, mutators: dict[Mutator, int]) -> Mutator:
    return rng.choices(list(mutators), list(mutators.values()))[0]


def mutate_text(rng: random.Random, module: str) -> tuple[str, str]:
    """The mutator's name and a module with one thing changed."""
    if rng.random() < 0.002:
        return "repeat", programs.with_ttir(module, repeat(rng, programs.ttir_of(module)))
    if rng.random() < 0.55:
        mutator = draw(rng, KERNEL_MUTATORS)
        return f"kernel {mutator.__name__}", programs.with_ttir(module, mutator(rng, programs.ttir_of(module)))
    mutator = draw(rng, MODULE_MUTATORS)
    return f"module {mutator.__name__}", mutator(rng, module)


def mutate_bytes(rng: random.Random, data: bytes, other: bytes) -> tuple[str, bytes]:
    """Bytecode, or text, that may be no module at all."""
    kind = rng.choice(("flip", "flip", "flip", "set", "cut", "splice", "double", "zero", "insert", "noise"))
    if kind == "noise":
        return kind, rng.randbytes(rng.randrange(400))
    made = bytearray(data)
    at = rng.randrange(len(made))
    length = rng.randrange(1, 40)
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 1, 3, 10))):
            made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    elif kind == "set":
        made[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    elif kind == "cut":
        del made[at : at + rng.choice((1, length, len(made)))]
    elif kind == "splice":
        start = rng.randrange(len(other))
        made[at : at + length] = other[start : start + length]
    elif kind == "double":
        made[at:at] = made[at : at + length]
    elif kind == "zero":
        made[at : at + length] = bytes(min(length, len(made) - at))
    else:
        made[at:at] = rng.randbytes(length)
    return kind, bytes(made)


class Judge:
    """The validating child, replaced when an input ends it."""

    def __init__(self) -> None:
        self.worker = start_validator(LIMITS, allow_unjailed=UNJAILED)

    def __call__(self, data: bytes, task: Workload) -> Artefact | Rejection | Ended:
        self.worker.send(wire.job(data, task, LIMITS))
        answer = self.worker.receive(DEADLINE_S, wire.ANSWER_BYTES)
        if isinstance(answer, Ended):
            self.worker.kill()
            self.worker = start_validator(LIMITS, allow_unjailed=UNJAILED)
            return answer
        return wire.read_verdict(answer, task, LIMITS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="how many inputs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutations (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    started = time.monotonic()

    bases = {}
    for name, (function, task) in programs.HONEST.items():
        data = programs.export_bytes(function, task)
        (honest,) = validate_jailed([(data, task)], LIMITS, allow_unjailed=UNJAILED)
        if not isinstance(honest, Artefact):
            sys.exit(f"{name} is honest and was refused: {honest}")
        bases[name] = (data, honest.module, task)

    reasons: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    crashes, hangs, unstable, internal = [], [], [], []
    judge = Judge()
    for i in range(options.inputs):
        data, module, task = bases[rng.choice(list(bases))]
        if rng.random() < 0.01:  # the types of another task
            task = rng.choice(list(bases.values()))[2]
        if i % 2 == 0:
            kind, text = mutate_text(rng, module)
            given = text.encode()
        else:
            base = data if rng.random() < 0.7 else module.encode()
            kind, given = mutate_bytes(rng, base, rng.choice(list(bases.values()))[0])
            kind = f"bytes {kind}"
        kinds[kind.split()[0]] += 1
        found = judge(given, task)
        if isinstance(found, Ended):
            (hangs if found.reason == "timeout" else crashes).append({"input": i, "kind": kind, "signal": found.signal})
            reasons["hang" if found.reason == "timeout" else "crash"] += 1
        elif isinstance(found, Rejection):
            reasons[found.reason] += 1
            if "cannot be read (" in found.message:
                internal.append({"input": i, "kind": kind, "message": found.message})
        else:
            reasons["accepted"] += 1
            accepted[kind] += 1
            if i % 10 == 0 and judge(found.module.encode(), task) != found:
                unstable.append({"input": i, "kind": kind})
        if i % 2000 == 1999:
            print(f"{i + 1} inputs, {time.monotonic() - started:.0f} s, {dict(reasons)}", file=sys.stderr)
    judge.worker.kill()

    ours = [reason for reason, (gate, _) in REASONS.items() if gate == "validate"]
    report = {
        "inputs": options.inputs,
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
        "jail": level(),
        "kinds": dict(kinds),
        "reasons": dict(reasons.most_common()),
        "reasons_never_hit": [reason for reason in ours if reason not in reasons],
        "accepted_by_mutator": dict(accepted.most_common()),
        "crashes": len(crashes),
        "hangs": len(hangs),
        "unexpected_exceptions": len(internal),
        "unstable_accepts": len(unstable),
        "samples": {
            "crashes": crashes[:20],
            "hangs": hangs[:20],
            "unexpected": internal[:20],
            "unstable": unstable[:20],
        },
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return 1 if unstable else 0


if __name__ == "__main__":
    sys.exit(main())
