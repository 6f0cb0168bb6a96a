"""C on a GPU, the child's side: compiles and runs validated programs, for one candidate, until told to stop.

It runs none of the candidate's Python: what it compiles is text that the validator printed, under types that the task
gives. It holds inputs and outputs and never a reference. Arrays come and go in two arenas; frames say where they are.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
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
from pallas_evo.running.arena import Arena
from pallas_evo.tasks.references import REFERENCES

_POISON_BYTES = 256 << 20  # one piece of the NaN that a program's temporaries are to find
_WALL_CALLS = 5
_COMPILING = 8
BASELINE = "the XLA baseline did not compile"


def main(channel: Channel) -> None:
    """Say which device this is, then answer requests {op: compile | baseline | run | prepare | measure, ...}."""
    device = jax.devices()[0]
    _POISON.fill()
    timers.warm()
    channel.send(wire.pack({"device": device.device_kind, "platform": device.platform}))
    inward, outward = (Arena(int(number)) for number in os.environ["PALLAS_EVO_INHERITED"].split(","))
    child = _Child(channel, inward, outward)
    while (frame := channel.receive()) is not None:
        header, _ = wire.unpack(frame)
        try:
            answer = {"status": "ok", **getattr(child, f"on_{header['op']}")(header)}
        except Exception as error:  # what XLA, Triton or the driver say of this program; the parent gives it a reason
            answer = {"status": "error", "stage": header["op"], "message": str(error)[:4000]}
        channel.send(wire.pack(answer))


class _Child:
    """What this process knows of its candidate: programs and baselines by label, and the measurement in hand."""

    def __init__(self, channel: Channel, inward: Arena, outward: Arena) -> None:
        self.channel, self.inward, self.outward = channel, inward, outward
        self.programs: dict[str, _Program] = {}
        self.baselines: dict[str, Any] = {}
        self.calls: timers.Calls | None = None
        self.counts: Mapping[str, int] = {}
        self.timed: list[Any] = []  # outputs of the timed calls

    def on_compile(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Compile programs, and what they are timed against, side by side; each is kept under its label."""
        start = time.perf_counter()
        with ThreadPoolExecutor(_COMPILING) as threads:
            programs = {one["label"]: threads.submit(_Program, one) for one in header["programs"]}
            baselines = {one["label"]: threads.submit(_baseline, one) for one in header["baselines"]}
            for one in header["baselines"]:  # and what will make the timed calls' inputs
                for (shape, dtype), scaled in zip(one["inputs"], one["scaled"], strict=True):
                    threads.submit(_turning, tuple(shape), dtype, scaled)
        self.programs.update({label: future.result() for label, future in programs.items()})
        try:
            self.baselines.update({label: future.result() for label, future in baselines.items()})
        except Exception as error:
            raise RuntimeError(f"{BASELINE}: {error}") from error
        return {"seconds": time.perf_counter() - start}

    def on_run(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Run twice on the same inputs, over fresh poison; say whether outputs agree and inputs are unchanged."""
        program = self.programs[header["label"]]
        arrays = self.inward.read(header["inputs"])
        arguments = jax.block_until_ready([jax.device_put(array) for array in arrays])
        self._placed()
        outputs = []
        seconds = 0.0
        for _ in range(2):
            poison = program.poison()
            _POISON.spread(program.temporary_bytes)
            jax.block_until_ready(poison)
            start = time.perf_counter()
            result = jax.block_until_ready(program.compiled(poison, *arguments))
            seconds = time.perf_counter() - start
            outputs.append(np.asarray(result))
            del result
        unchanged = all(_same(np.asarray(argument), array) for argument, array in zip(arguments, arrays, strict=True))
        return {
            "agree": _same(*outputs),
            "unchanged": unchanged,
            "seconds": seconds,
            "outputs": self.outward.write(outputs[:1]),
        }

    def on_prepare(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Put the input sets of a measurement on the GPU, and warm and count all that may run beside others."""
        program = self.programs[header["label"]]
        against = header["against"]
        baseline = self._as_baseline(against, len(header["turns"])) if against else self.baselines[header["label"]]
        base = [jax.device_put(array) for array in self.inward.read(header["inputs"])]
        self._placed()

        def sets(named: str) -> list[list[Any]]:
            return [[_turned(array, *turn) for array, turn in zip(base, turns, strict=True)] for turns in header[named]]

        mine = sets("turns")
        self.calls = timers.Calls(
            candidate=program.compiled,
            baseline=baseline,
            inputs=mine,
            baseline_inputs=sets("baseline_turns"),
            poison=[program.poison() for _ in mine],
        )
        self.counts = timers.TIMERS[header["timer"]].prepare(self.calls)
        jax.block_until_ready((self.calls.inputs, self.calls.baseline_inputs, self.calls.poison))
        return {}

    def on_measure(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Take the samples; `on_outputs` hands back outputs of the timed calls, when the GPU need not be held alone."""
        calls, self.calls = self.calls, None
        if calls is None:
            raise RuntimeError("nothing was prepared")
        program = self.programs[header["label"]]
        taken = timers.TIMERS[header["timer"]].measure(calls, self.counts)
        self.timed = taken.outputs
        walls = taken
        if header["timer"] != "wall":
            few = calls.inputs[:_WALL_CALLS]
            again = dataclasses.replace(calls, inputs=few, poison=[program.poison() for _ in few])
            walls = timers.TIMERS["wall"].measure(again, {})
        return {
            "timer": header["timer"],
            "candidate_us": taken.candidate_us,
            "baseline_us": taken.baseline_us,
            "kernels": taken.kernels,
            "wall_candidate_us": walls.candidate_us,
            "wall_baseline_us": walls.baseline_us,
        }

    def on_outputs(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs of the last measurement's timed calls, by their place."""
        timed, self.timed = self.timed, []
        return {"outputs": self.outward.write([np.asarray(timed[index]) for index in header["keep"]])}

    def on_bandwidth(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Device time of copying `bytes` once (they are read and written), `repeats` times, by CUPTI."""
        count = int(header["bytes"]) // 4
        # An addition: a plain copy would go to the copy engine, which CUPTI does not show and kernels do not use.
        program = jax.jit(lambda value: value + 1.0).lower(jax.ShapeDtypeStruct((count,), jnp.float32)).compile()
        value = jax.block_until_ready(program(jnp.zeros((count,), jnp.float32)))
        found = [timers.launches(lambda: program(value)) for _ in range(int(header["repeats"]))]
        return {"samples_us": [sum(ms for _, ms in one) * 1e3 for one in found]}

    def _as_baseline(self, against: str, repeats: int) -> Any:
        """Another compiled program in the baseline's place, for comparing a program with itself.

        Its poison is made ahead, or filling it would count as a kernel of every call.
        """
        other = self.programs[against]
        poison = [other.poison() for _ in range(repeats + 2 * _WALL_CALLS)]
        return lambda *inputs: other.compiled(poison.pop(), *inputs)

    def _placed(self) -> None:
        """Tell the parent that the transfers are over, so that only the kernels' own time counts from here."""
        self.channel.send(wire.pack({"status": "placed"}))


class _Program:
    """One compiled program. Its output is written over an argument that holds NaN."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        inputs = _types(header["inputs"])
        output = jax.ShapeDtypeStruct(tuple(header["output"][0]), header["output"][1])
        call = callable_of(header["module"], inputs, output)
        program = jax.jit(lambda _, *args: call(*args), donate_argnums=0, keep_unused=True)
        self.compiled = program.lower(output, *inputs).compile()
        text = self.compiled.as_text() or ""
        if not re.search(r"input_output_alias=\{ *\{\}: \(0,", text):
            raise RuntimeError("XLA did not alias the poisoned argument to the output")
        analysis = self.compiled.memory_analysis()
        self.temporary_bytes = int(getattr(analysis, "temp_size_in_bytes", 0) or 0)
        self.poison = jax.jit(lambda: jnp.full(output.shape, jnp.nan, output.dtype)).lower().compile()


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


class _Poison:
    """NaN in the memory that a program's temporaries are about to take."""

    def __init__(self) -> None:
        self._program: Any = None

    def fill(self) -> Any:
        """One piece."""
        if self._program is None:
            self._program = jax.jit(lambda: jnp.full((_POISON_BYTES // 4,), jnp.nan, jnp.float32)).lower().compile()
        return self._program()

    def spread(self, temporary_bytes: int) -> None:
        """Fill as much as the temporaries need and one piece beyond, and give it all back."""
        pieces = [self.fill() for _ in range(1 + -(-temporary_bytes // _POISON_BYTES))]
        jax.block_until_ready(pieces)
        for piece in pieces:
            piece.delete()


_POISON = _Poison()


def _baseline(header: Mapping[str, Any]) -> Any:
    return jax.jit(REFERENCES[header["task"]]).lower(*_types(header["inputs"])).compile()


def _types(described: Sequence[Sequence[Any]]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in described]


@cache
def _turning(shape: tuple[int, ...], dtype: str, scaled: bool) -> Any:
    """A compiled program that makes what `turns.turned` makes on the host, bit for bit."""
    array, shift = jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct((), jnp.int32)
    if not scaled:
        return jax.jit(lambda x, by: jnp.roll(x, by, axis=0)).lower(array, shift).compile()
    factor = jax.ShapeDtypeStruct((), jnp.float32)
    return jax.jit(lambda x, by, times: jnp.roll(x, by, axis=0) * times).lower(array, shift, factor).compile()


def _turned(array: jax.Array, shift: int, factor: float | None) -> jax.Array:
    program = _turning(array.shape, array.dtype.name, factor is not None)
    scale = [] if factor is None else [np.float32(factor)]
    result: jax.Array = program(array, np.int32(shift), *scale)
    return result


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal, NaN where the other is NaN; bytes first, which is quick and settles it nearly always."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    bits = np.dtype(f"u{one.dtype.itemsize}")
    if np.array_equal(one.view(bits), other.view(bits)):
        return True
    return bool(np.array_equal(one, other, equal_nan=True))
