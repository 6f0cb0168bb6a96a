"""C without a GPU, the child's side: runs validated programs in the executor, for one candidate, until told to stop."""

from __future__ import annotations

from pallas_evo.errors import UnknownOperation
from pallas_evo.jail.frames import Channel
from pallas_evo.running import wire
from pallas_evo.running.executor import execute
from pallas_evo.types import ArraySpec, Rejection


def main(channel: Channel) -> None:
    """Answer each request {module, output, lane_elements} + inputs with {status, ...} + the output."""
    while (frame := channel.receive()) is not None:
        header, inputs = wire.unpack(frame)
        output = ArraySpec(shape=tuple(header["output"]["shape"]), dtype=header["output"]["dtype"])
        try:
            done = execute(header["module"], inputs, output, lane_elements=header["lane_elements"])
        except UnknownOperation as error:
            channel.send(wire.pack({"status": "unknown_operation", "message": str(error)}))
            continue
        except MemoryError:
            done = Rejection(
                reason="run_memory",
                message="The program needs more memory than the runner has: use smaller blocks or fewer temporaries.",
            )
        if isinstance(done, Rejection):
            channel.send(wire.pack({"status": "rejected", "reason": done.reason, "message": done.message}))
            continue
        counts = {
            "bytes_loaded": done.counts.bytes_loaded,
            "bytes_stored": done.counts.bytes_stored,
            "flops": done.counts.flops,
        }
        channel.send(wire.pack({"status": "ok", "counts": counts, "seconds": done.seconds}, [done.output]))
