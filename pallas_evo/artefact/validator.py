"""`validate`: hostile bytes in, our own printed program out, or a reason.

Decode, replace names, print without locations, parse that print again, and hold every rule against what was parsed.
The text that is returned and hashed is therefore exactly the text that was judged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from jaxlib.mlir import ir

from pallas_evo.artefact import rules
from pallas_evo.artefact.glue import Program, array, callee, spec_text
from pallas_evo.artefact.kernels import KernelCode, read_kernel
from pallas_evo.artefact.parsing import Lines, attributes, context, decode, parse, text_of, walk
from pallas_evo.artefact.refusal import Refused, clean
from pallas_evo.config import ArtefactLimits
from pallas_evo.types import Artefact, Kernel, Rejection, Workload


def validate(module: bytes, workload: Workload, limits: ArtefactLimits) -> Artefact | Rejection:
    """Judge one exported program.

    Args:
        module: `jax.export.Exported.mlir_module_serialized`, as the tracer handed it over. Never believed.
        workload: the task's types at this size.
        limits: caps on sizes, counts and launches.

    Returns:
        The validated program as text of our own, or why it is refused. Never raises for what `module` holds.
    """
    try:
        return _validate(module, workload, limits)
    except Refused as refused:
        return refused.rejection()
    except RecursionError:
        return Refused("program_size", "The program nests too deep to be read.").rejection()
    except MemoryError:
        return Refused("malformed", "Reading the program takes more memory than the validator has.").rejection()
    except Exception as error:
        # The bytes are hostile and MLIR's bindings raise whatever they like: whoever made them gets no traceback of
        # ours, and no way to end the judge.
        return Refused(
            "malformed", f"The program cannot be read ({type(error).__name__}: {clean(error, 120)})."
        ).rejection()


def _validate(module: bytes, workload: Workload, limits: ArtefactLimits) -> Artefact:
    decoded = decode(module)
    lines = Lines(decoded, limits.operations)
    kernels = _normalise(decoded, lines, limits)
    text = text_of(decoded)
    printed = parse(text, "The program")
    if text_of(printed) != text or "{-#" in text:  # resources: values stored beside the program
        raise Refused("malformed", "The program does not read back as it was printed, or carries resources.")
    operations = list(walk(printed.operation, limits.operations))
    if len(operations) != len(lines):
        raise Refused("malformed", "The program does not read back as it was printed.")
    total = len(operations) + sum(code.operations for code in kernels)
    if total > limits.operations:
        raise Refused(
            "program_size",
            f"The program has {total} operations; at most {limits.operations} are allowed. Use loops (lax.fori_loop) "
            "instead of unrolling.",
        )
    _check_attributes(printed.operation, rules.MODULE_ATTRIBUTES, "The module", "")
    functions = _check_functions(printed)
    calls = _check_operations(operations, functions, lines)
    if not calls:
        raise Refused(
            "not_pallas",
            "The program has no Pallas Triton kernel; compute inside pl.pallas_call with plgpu.CompilerParams.",
        )
    _check_signature(functions["main"], workload)
    program = Program(
        functions=functions,
        places={operation: place for place, operation in enumerate(operations)},
        lines=lines,
        kernels=dict(zip(calls, kernels, strict=True)),
        workload=workload,
        limits=limits,
    )
    program.check()
    unused = functions.keys() - program.called
    if unused:
        raise Refused("malformed", f"The program has functions that nothing calls: {', '.join(sorted(unused))}.")
    return Artefact(
        workload=workload,
        module=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        kernels=tuple(
            Kernel(
                name=code.launch.name,
                grid=code.launch.grid,
                num_warps=code.launch.num_warps,
                num_stages=code.launch.num_stages,
                ttir=code.ttir,
            )
            for code in kernels
        ),
        moved_bytes=program.moved_bytes,
    )


def _normalise(decoded: ir.Module, lines: Lines, limits: ArtefactLimits) -> list[KernelCode]:
    """Give everything names of ours, drop what only describes, and put printed Triton IR into the Triton calls."""
    kernels: list[KernelCode] = []
    root = decoded.operation
    operations = list(walk(root, limits.operations))
    renamed: dict[str, str] = {}
    for operation in operations:
        if operation.name == "func.func":
            name = ir.StringAttr(operation.attributes["sym_name"]).value
            renamed[name] = "main" if name == "main" else f"function_{len(renamed)}"
    with context(), ir.Location.unknown():
        root.attributes["sym_name"] = ir.StringAttr.get("candidate")
        if str(dict(attributes(root)).get("jax.uses_shape_polymorphism")) == "false":
            del root.attributes["jax.uses_shape_polymorphism"]
        for place, operation in enumerate(operations):
            if operation.name == "func.func":
                name = ir.StringAttr(operation.attributes["sym_name"]).value
                operation.attributes["sym_name"] = ir.StringAttr.get(renamed[name])
                _drop_result_names(operation)
            elif operation.name == "func.call":
                operation.attributes["callee"] = ir.FlatSymbolRefAttr.get(renamed.get(callee(operation), "unknown"))
            elif operation.name == "stablehlo.custom_call":
                where = lines.at(place)
                target = ir.StringAttr(operation.attributes["call_target_name"]).value
                if target != rules.TRITON_CALL:
                    raise Refused(
                        "forbidden_custom_call",
                        f"The custom call {clean(target, 60)!r}{where} is not the Pallas Triton call; callbacks, "
                        "sharding "
                        "and library calls are refused. Pass plgpu.CompilerParams to pl.pallas_call.",
                    )
                if len(kernels) >= limits.kernels:
                    raise Refused("program_size", f"The program has more than {limits.kernels} Triton kernels.")
                code = read_kernel(operation, len(kernels), where, limits)
                kernels.append(code)
                operation.attributes["mhlo.backend_config"] = _config(code)
    return kernels


def _config(code: KernelCode) -> ir.DictAttr:
    """A Triton call's configuration, written anew from what was read."""
    i32 = ir.IntegerType.get_signless(32)
    launch = code.launch
    numbers = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    numbers |= dict(zip(("grid_x", "grid_y", "grid_z"), launch.grid, strict=True))
    return ir.DictAttr.get(
        {
            "name": ir.StringAttr.get(code.symbol),
            "ir": ir.StringAttr.get(code.ttir),
            "debug": ir.BoolAttr.get(False),
            **{key: ir.IntegerAttr.get(i32, value) for key, value in numbers.items()},
        }
    )


def _drop_result_names(function: Any) -> None:
    """`jax.result_info` only names results."""
    found = dict(attributes(function)).get("res_attrs")
    if isinstance(found, ir.ArrayAttr):
        kept = [
            {pair.name: pair.attr for pair in ir.DictAttr(item) if pair.name != "jax.result_info"} for item in found
        ]
        function.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(item) for item in kept])


def _check_attributes(operation: Any, allowed: dict[str, str], what: str, where: str) -> None:
    for key, value in attributes(operation):
        pattern = allowed.get(key)
        if pattern is None or not rules.matches(pattern, value):
            raise Refused(
                "forbidden_attribute",
                f"{what}{where} carries {clean(key, 40)} = {clean(value, 60)}, which no honest export has; remove "
                "sharding constraints, metadata and compiler options.",
            )


def _check_functions(printed: ir.Module) -> dict[str, Any]:
    """One public `main`, and private functions; each of one block."""
    functions: dict[str, Any] = {}
    top = [view.operation for view in printed.body.operations]
    for operation in top:
        if operation.name != "func.func":
            raise Refused(
                "forbidden_op", f"{clean(operation.name)} at the top of the program is not allowed; only functions are."
            )
        name = ir.StringAttr(operation.attributes["sym_name"]).value
        _check_attributes(operation, rules.FUNCTION_ATTRIBUTES, f"The function {clean(name, 40)}", "")
        carried = dict(attributes(operation))
        visibility = str(carried.get("sym_visibility", '"public"')).strip('"')
        if (visibility == "public") != (name == "main") or name in functions:
            raise Refused(
                "malformed",
                f"The function {clean(name, 40)} is {clean(visibility, 20)}; exactly one function, main, is public.",
            )
        for kind in ("arg_attrs", "res_attrs"):
            for item in carried.get(kind, ()):
                for pair in ir.DictAttr(item):
                    _refuse_value_attribute(pair.name, pair.attr)
        if len(operation.regions[0].blocks) != 1:
            raise Refused(
                "malformed",
                f"The function {clean(name, 40)} has {len(operation.regions[0].blocks)} blocks; one was expected.",
            )
        functions[name] = operation
    if "main" not in functions:
        raise Refused("malformed", "The program has no function main.")
    return functions


def _check_signature(main: Any, workload: Workload) -> None:
    """Exactly the task's types."""
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    expected = [f"tensor<{spec_text(spec)}>" for spec in workload.inputs], [f"tensor<{spec_text(workload.output)}>"]
    found = [str(item) for item in kind.inputs], [str(item) for item in kind.results]
    for what, want, got in zip(("inputs", "outputs"), expected, found, strict=True):
        if want == got:
            continue
        types = f"({clean(', '.join(got), 150)}); the task's are ({clean(', '.join(want), 150)})"
        if what == "inputs" and len(got) < len(want) and not Counter(got) - Counter(want):
            raise Refused(
                "not_pallas",
                f"The program's inputs are {types}. JAX leaves out an input that kernel() never uses: load every one "
                "in a Pallas kernel.",
            )
        raise Refused("signature", f"The program's {what} are {types}.")


def _refuse_value_attribute(name: str, value: object) -> None:
    if name in ("tf.aliasing_output", "jax.buffer_donor"):
        raise Refused("input_alias", f"An input is donated ({name}); remove donate_argnums: inputs stay as they are.")
    raise Refused(
        "forbidden_attribute",
        f"An input or result carries {clean(name, 40)} = {clean(value, 60)}, which no honest export has.",
    )


def _check_operations(operations: list[Any], functions: dict[str, Any], lines: Lines) -> list[Any]:
    """Every operation by allow-list; the Triton calls in order."""
    calls = []
    for place, operation in enumerate(operations):
        name, where = operation.name, lines.at(place)
        if name == "func.func":
            if functions.get(ir.StringAttr(operation.attributes["sym_name"]).value) != operation:
                raise Refused("malformed", "A function stands inside another.")
            continue
        allowed = rules.GLUE.get(name)
        if allowed is None:
            advice = rules.ADVICE.get(name.split(".", 1)[-1], "do it inside the Pallas kernel")
            raise Refused("forbidden_op", f"{clean(name)}{where} is not allowed outside the Pallas kernels: {advice}.")
        _check_attributes(operation, allowed, name, where)
        if len(operation.regions):
            raise Refused("malformed", f"{name}{where} has a region; none was expected.")
        for value in operation.results:
            array(value.type, where)
        if name == "stablehlo.constant" and not isinstance(operation.attributes["value"], ir.DenseElementsAttr):
            raise Refused("forbidden_attribute", f"A constant{where} does not hold its values in the program.")
        if name == "func.call" and callee(operation) not in functions:
            raise Refused("malformed", f"A call{where} names a function that does not exist.")
        if name == "stablehlo.custom_call":
            _check_layouts(operation, where)
            calls.append(operation)
    return calls


def _check_layouts(call: Any, where: str) -> None:
    """Row-major operands and results: the only layout that a Pallas kernel is written for."""
    carried = dict(attributes(call))
    for key, values in (("operand_layouts", call.operands), ("result_layouts", call.results)):
        found = carried.get(key)
        if found is None:
            continue
        want = [list(reversed(range(len(array(value.type).shape)))) for value in values]
        got = [[int(axis) for axis in ir.DenseIntElementsAttr(item)] for item in found]
        if want != got:
            raise Refused("forbidden_attribute", f"A Triton call{where} has {key} that are not row-major.")
