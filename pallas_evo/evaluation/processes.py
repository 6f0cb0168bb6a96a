"""The child processes that serve one candidate."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from pallas_evo.artefact.compiling import start_compiler
from pallas_evo.artefact.jailed import start_validator
from pallas_evo.config import Config
from pallas_evo.jail import Worker
from pallas_evo.running import DeviceRunner, HostRunner
from pallas_evo.tracing import Tracers
from pallas_evo.types import Target


class Processes:
    """The child processes that serve one candidate, coming up side by side."""

    def __init__(self, config: Config, target: Target) -> None:
        unjailed = config.allow_unjailed
        self._stack = ExitStack()
        with ExitStack() as starting:
            self.tracers = starting.enter_context(Tracers(config.trace, allow_unjailed=unjailed))
            self.validator: Worker = starting.enter_context(start_validator(config.artefact, allow_unjailed=unjailed))
            self.host = starting.enter_context(HostRunner(config.run, allow_unjailed=unjailed))
            self.device = starting.enter_context(DeviceRunner(config.run)) if target == "cuda" else None
            compiler = start_compiler() if config.compile.enabled and config.compile.architectures else None
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
