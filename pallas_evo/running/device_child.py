"""C on a GPU, the child's side: compiles and runs validated programs, for one candidate, until told to stop.

It runs none of the candidate's Python: what it compiles is text that the validator printed, under types that the task
gives. It holds inputs and outputs and never a reference.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _stablehlo

from pallas_evo.jail.frames import Channel
from pallas_evo.running import timers, wire
from pallas_evo.tasks.references import REFERENCES

_SPARE_BYTES = 256 << 20  # filled with NaN beyond what a program's temporaries need


def main(channel: Channel) -> None:
    """Say which device this is, then answer requests {op: compile | run | time, ...}; programs are kept by label."""
    device = jax.devices()[0]
    channel.send(wire.pack({"device": device.device_kind, "platform": device.platform}))
    programs: dict[str, _Program] = {}
    while (frame := channel.receive()) is not None:
        header, arrays = wire.unpack(frame)
        try:
            if header["op"] == "compile":
                start = time.perf_counter()
                programs[header["label"]] = _Program(header)
                answer = wire.pack({"status": "ok", "seconds": time.perf_counter() - start})
            elif header["op"] == "run":
                answer = programs[header["label"]].run(arrays)
            else:
                answer = programs[header["label"]].time(arrays, header)
        except Exception as error:  # what XLA, Triton or the driver say of this program; the parent gives it a reason
            answer = wire.pack({"status": "error", "stage": header["op"], "message": str(error)[:4000]})
        channel.send(answer)


def callable_of(module: str, inputs: Sequence[jax.ShapeDtypeStruct], output: jax.ShapeDtypeStruct) -> Any:
    """A JAX-callable of validated module text, under types of ours.

    A function of ours is exported with the task's types, and its module replaced: nothing of the candidate's own
    export (its types, effects, shardings, safety checks) is ever read here.
    """
    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        version = _stablehlo.get_version_from_compatibility_requirement(
            _stablehlo.StablehloCompatibilityRequirement.WEEK_4
        )
        code = _stablehlo.serialize_portable_artifact(parsed, version)
    platform = "cuda" if jax.devices()[0].platform == "gpu" else jax.devices()[0].platform
    ours = export.export(jax.jit(lambda *_: jnp.zeros(output.shape, output.dtype)), platforms=[platform])(*inputs)
    kept = tuple(range(len(inputs)))
    return dataclasses.replace(ours, mlir_module_serialized=code, module_kept_var_idx=kept).call


class _Program:
    """One compiled program. Its output is written over an argument that holds NaN."""

    def __init__(self, header: dict[str, Any]) -> None:
        inputs = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in header["inputs"]]
        self.inputs = inputs
        self.output = jax.ShapeDtypeStruct(tuple(header["output"][0]), header["output"][1])
        call = callable_of(header["module"], inputs, self.output)
        program = jax.jit(lambda _, *args: call(*args), donate_argnums=0, keep_unused=True)
        self.compiled = program.lower(self.output, *inputs).compile()
        text = self.compiled.as_text() or ""
        if not re.search(r"input_output_alias=\{ *\{\}: \(0,", text):
            raise RuntimeError("XLA did not alias the poisoned argument to the output")
        analysis = self.compiled.memory_analysis()
        self.temporary_bytes = int(getattr(analysis, "temp_size_in_bytes", 0) or 0)

    def run(self, arrays: Sequence[np.ndarray]) -> bytes:
        """Run twice on the same inputs, over fresh poison; say whether outputs agree and inputs are unchanged."""
        arguments = [jax.device_put(array) for array in arrays]
        outputs = []
        seconds = 0.0
        for _ in range(2):
            poison = jnp.full(self.output.shape, jnp.nan, self.output.dtype)
            self._poison_pool()
            jax.block_until_ready((poison, arguments))
            start = time.perf_counter()
            result = jax.block_until_ready(self.compiled(poison, *arguments))
            seconds = time.perf_counter() - start
            outputs.append(np.asarray(result))
            del result
        agree = bool(np.array_equal(outputs[0], outputs[1], equal_nan=True))
        unchanged = all(
            np.array_equal(np.asarray(argument), array, equal_nan=True)
            for argument, array in zip(arguments, arrays, strict=True)
        )
        return wire.pack({"status": "ok", "agree": agree, "unchanged": unchanged, "seconds": seconds}, [outputs[0]])

    def time(self, arrays: Sequence[np.ndarray], header: dict[str, Any]) -> bytes:
        """Time the program and the XLA baseline, interleaved, by the named timer.

        `arrays` are input sets one after another: `repeats` for the program, each used once, then those for the
        baseline, used in turn. The outputs of the timed calls in `keep` are returned.
        """
        count = len(self.inputs)
        sets = [
            [jax.device_put(array) for array in arrays[start : start + count]] for start in range(0, len(arrays), count)
        ]
        repeats = header["repeats"]
        mine, others = sets[:repeats], sets[repeats:]
        baseline = jax.jit(REFERENCES[header["task"]]).lower(*self.inputs).compile()
        calls = timers.Calls(
            candidate=self.compiled,
            baseline=baseline,
            inputs=mine,
            baseline_inputs=others,
            poison=[jnp.full(self.output.shape, jnp.nan, self.output.dtype) for _ in mine],
        )
        taken = timers.TIMERS[header["timer"]](calls)
        spare = [jnp.full(self.output.shape, jnp.nan, self.output.dtype) for _ in mine[:5]]
        walls = timers.wall(dataclasses.replace(calls, inputs=mine[:5], poison=spare))
        said = {
            "status": "ok",
            "timer": header["timer"],
            "candidate_us": taken.candidate_us,
            "baseline_us": taken.baseline_us,
            "kernels": taken.kernels,
            "wall_candidate_us": walls.candidate_us,
            "wall_baseline_us": walls.baseline_us,
        }
        return wire.pack(said, [np.asarray(taken.outputs[index]) for index in header["keep"]])

    def _poison_pool(self) -> None:
        """Leave NaN in the memory that this program's temporaries are about to take."""
        size = (self.temporary_bytes + _SPARE_BYTES) // 4
        jax.block_until_ready(jnp.full((size,), jnp.nan, jnp.float32)).delete()
