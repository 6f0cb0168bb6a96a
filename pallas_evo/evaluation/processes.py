"""The child processes that serve one candidate."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from pallas_evo.artefact import jailed as jailed_validator
from pallas_evo.artefact.compiling import start_compiler
from pallas_evo.artefact.jailed import start_validator
from pallas_evo.config import Config
from pallas_evo.jail import Nursery, Worker, level
from pallas_evo.running import DeviceRunner, HostRunner, device, host
from pallas_evo.tracing import Tracers, tracer
from pallas_evo.types import Target


class Nurseries:
    """What forks the processes of many candidates, one for each kind that JAX or MLIR makes slow to start.

    For a process that judges many candidates; one that judges a few starts its processes from nothing.
    """

    def __init__(self, target: Target) -> None:
        self._stack = ExitStack()
        with ExitStack() as starting:
            jailed = not level().startswith("bubblewrap")  # where a fork would share its siblings' namespaces
            start = starting.enter_context
            self.tracers = start(Nursery(tracer.CHILD, env=tracer.ENVIRONMENT)) if jailed else None
            self.validator = start(Nursery(jailed_validator.CHILD)) if jailed else None
            self.host = start(Nursery(host.CHILD)) if jailed else None
            self.device = start(Nursery(device.CHILD, env=device.environment())) if target == "cuda" else None
            self._stack = starting.pop_all()

    def close(self) -> None:
        """End them, and what is left of their children."""
        self._stack.close()


class Processes:
    """The child processes that serve one candidate, coming up side by side."""

    def __init__(self, config: Config, target: Target, nurseries: Nurseries | None = None) -> None:
        unjailed, born = config.allow_unjailed, nurseries
        self._stack = ExitStack()
        with ExitStack() as starting:
            start = starting.enter_context
            # Warming pays where they wait for their candidate, as a pool's do.
            warm = born is not None
            self.tracers = start(
                Tracers(config.trace, allow_unjailed=unjailed, nursery=born.tracers if born else None, warm=warm)
            )
            self.validator: Worker = start(
                start_validator(config.artefact, allow_unjailed=unjailed, nursery=born.validator if born else None)
            )
            self.host = start(HostRunner(config.run, allow_unjailed=unjailed, nursery=born.host if born else None))
            self.device = (
                start(DeviceRunner(config.run, nursery=born.device if born else None)) if target == "cuda" else None
            )
            compiler = start_compiler(warm=warm) if config.compile.enabled and config.compile.architectures else None
            self.compiler = starting.enter_context(compiler) if compiler is not None else None
            self._stack = starting.pop_all()

    @property
    def alive(self) -> bool:
        """Whether all are there, up or still coming up: one that died waiting must not be a candidate's fault."""
        return all(one.alive for one in self._all())

    def stop(self) -> None:
        """Send all their end, from whichever thread, and do not wait; `kill` does."""
        for one in self._all():
            one.stop()

    def kill(self) -> None:
        """End all, and wait until they are gone."""
        self.stop()
        self._stack.close()

    def _all(self) -> list[Worker | HostRunner | DeviceRunner]:
        maybe = [*self.tracers.workers, self.validator, self.host, self.device, self.compiler]
        return [one for one in maybe if one is not None]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()
