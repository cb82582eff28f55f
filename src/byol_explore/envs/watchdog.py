"""Time limits, warnings and one-line failures for environment code that is not ours.

Environments outside jit may raise, return a wrong shape, or never return. They are called in a thread of their own, and
a `Watchdog` records the pending call. The thread that needs the results waits in `wait_until`, which raises when one
call takes too long: that thread stays free, receives every signal, and can save everything learned so far.

A fault costs the episode, not the run: the environment is restarted, alone if its vector environment supports that
(`HostVectorEnv.pop_faults`), else with its batch. `Watchdog` counts and limits restarts.

Not covered: extension code that hangs while it holds the GIL, and `os._exit`. Environments in processes of their own
(Atari, Gymnasium's async vectorization) can do neither to this process.
"""

import contextlib
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from byol_explore.envs.checks import TimeStepValidator
from byol_explore.envs.interface import EnvSpec, HostEnvironment, HostVectorEnv
from byol_explore.errors import EnvironmentFailure, UserError
from byol_explore.types import Action, TimeStep
from byol_explore.utils.formatting import one_line
from byol_explore.utils.processes import close_in_time

POLL_SECONDS = 0.2  # between two checks of the pending call
_START_FACTOR = 10  # starts and resets may take this many times as long as a step

T = TypeVar("T")
VectorEnvT = TypeVar("VectorEnvT", bound=HostVectorEnv | None)


class StopStepping(Exception):
    """Raised in the environment thread when its next time step is not needed any more."""


class EnvironmentFault(EnvironmentFailure):
    """A failure that restarting the environment may fix."""


class PendingCall(NamedTuple):
    """A call of an environment that has not returned."""

    env: str
    operation: str
    timeout: float  # seconds
    thread: int  # id of the calling thread


class Watchdog:
    """Watches the environments that one thread calls."""

    def __init__(self, limit: float, reported: set[str] | None = None, *, max_restarts: int = 0) -> None:
        self.limit, self.max_restarts = limit, max_restarts
        self.restarts = 0  # of environments, since the start
        self._popped_restarts = 0
        # Watchdogs of several actors share this set: each warning is reported once.
        self._reported = set() if reported is None else reported
        self._warnings: list[str] = []
        self._pending: PendingCall | None = None
        self._vector_envs: list[HostVectorEnv] = []
        self._is_stopped = False

    def wrap(self, envs: Sequence[HostEnvironment]) -> list[HostEnvironment]:
        """Return environments that start vector environments under this watchdog."""
        return [WatchedEnvironment(env, self) for env in envs]

    def wait_until(self, is_done: Callable[[float], bool]) -> None:
        """Call `is_done(POLL_SECONDS)`, which may block that long, until it is true.

        Raises an EnvironmentFailure when one call takes longer than its timeout.
        """
        # Count polls instead of reading the clock: the time for which this process was suspended does not count.
        pending, waited = None, 0.0
        while not is_done(POLL_SECONDS):
            # Read once: two different calls must not be counted as one.
            before, pending = pending, self._pending
            waited = waited + POLL_SECONDS if pending is before else 0.0
            if pending is not None and waited >= pending.timeout:
                failure = EnvironmentFailure(
                    f"environment {pending.env!r} hangs: {pending.operation} has taken more than "
                    f"{pending.timeout:g} s (runtime.step_timeout allows more)"
                )
                failure.add_note(_format_stack(pending.thread))
                self.abort()
                raise failure

    def run(self, work: Callable[[], T]) -> T:
        """Return `work()`, run in a thread. Raises its error, or an EnvironmentFailure if an environment hangs."""
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=run, daemon=True, name="watched").start()
        try:
            self.wait_until(lambda seconds: bool(wait([outcome], seconds).done))
        except BaseException:
            self.abort()
            raise
        return outcome.result()

    def stop(self) -> None:
        """Allow no further step: the next one raises StopStepping."""
        self._is_stopped = True

    def abort(self) -> None:
        """Give up pending calls and end worker processes. A thread that hangs is left alone: it cannot be killed."""
        self.stop()
        for vector_env in self._vector_envs:
            with contextlib.suppress(Exception):  # the others must end too
                vector_env.abort()

    def pop_warnings(self) -> tuple[str, ...]:
        """Return the warnings since the last call."""
        warnings, self._warnings = self._warnings, []
        return tuple(warnings)

    def pop_restarts(self) -> int:
        """Return the number of environments that were restarted since the last call."""
        count, self._popped_restarts = self.restarts - self._popped_restarts, self.restarts
        return count

    def count_restart(self, fault: EnvironmentFault) -> None:
        """Count a restart and warn; raise an EnvironmentFailure beyond `max_restarts`."""
        if self.restarts >= self.max_restarts:
            before = f"; {self.restarts} were restarted before (runtime.max_env_restarts allows more)"
            failure = EnvironmentFailure(f"{fault}{before if self.restarts else ''}")
            failure.__notes__ = getattr(fault, "__notes__", [])
            raise failure from fault.__cause__
        self.restarts += 1
        self._warnings.append(f"{fault}; restarted ({self.restarts} of {self.max_restarts} times)")

    def start_env(self, spec: EnvSpec, start: Callable[..., VectorEnvT], *arguments: Any) -> VectorEnvT:
        """Return `start(*arguments)`, a vector environment that `abort` ends too."""
        vector_env = self.call(spec.name, "its start", start, *arguments, factor=_START_FACTOR)
        if vector_env is not None:
            self._vector_envs.append(vector_env)
        return vector_env

    def forget(self, vector_env: HostVectorEnv) -> None:
        """Stop tracking a vector environment whose processes have ended."""
        self._vector_envs = [each for each in self._vector_envs if each is not vector_env]

    def call(self, env: str, operation: str, function: Callable[..., T], *arguments: Any, factor: float = 1.0) -> T:
        """Call an environment. Any exception but a UserError becomes an EnvironmentFault of one line.

        Args:
          env: name of the environment.
          operation: what the call does, for messages.
          function: called with `arguments`.
          arguments: of the function.
          factor: multiplies the time limit of a step.
        """
        self._pending = PendingCall(env, operation, factor * self.limit, threading.get_ident())
        try:
            return function(*arguments)
        except UserError:
            raise
        except BaseException as error:  # SystemExit and KeyboardInterrupt of an environment must not end the run
            reason = f"{type(error).__name__}: {one_line(error)}"
            raise EnvironmentFault(f"environment {env!r} failed in {operation}: {reason}") from error
        finally:
            self._pending = None

    def raise_if_stopped(self) -> None:
        if self._is_stopped:
            raise StopStepping

    def warn(self, env: str, problems: Sequence[str], operation: str) -> None:
        """Keep warnings for `pop_warnings`; each text is reported once."""
        for problem in problems:
            text = f"environment {env!r}: {problem}"
            if text not in self._reported:
                self._reported.add(text)
                self._warnings.append(f"{text} ({operation})")


class WatchedEnvironment(HostEnvironment):
    """Starts watched vector environments."""

    def __init__(self, env: HostEnvironment, watchdog: Watchdog) -> None:
        self._env, self._watchdog = env, watchdog
        self.spec, self.stages = env.spec, env.stages

    def make_vector_env(self, num_envs: int, seed: int) -> "WatchedVectorEnv":
        return WatchedVectorEnv(partial(self._env.make_vector_env, num_envs), seed, self.spec, self._watchdog)

    def make_random_task_env(self, others: Sequence[Any], num_envs: int, seed: int) -> "WatchedVectorEnv | None":
        spec = self.spec._replace(name=",".join([self.spec.name, *(other.spec.name for other in others)]))
        envs = [other._env for other in others]
        make = partial(self._env.make_random_task_env, envs, num_envs)
        vector_env = self._watchdog.start_env(spec, make, seed)
        return None if vector_env is None else WatchedVectorEnv(make, seed, spec, self._watchdog, vector_env)


class WatchedVectorEnv(HostVectorEnv):
    """Calls a vector environment under the watchdog's time limits and validates every time step.

    Args:
      make: starts the vector environment with a seed; called again after a fault.
      seed: of the first one.
      spec: of its environments.
      watchdog: limits and counts.
      vector_env: the first one, if it has started already.
    """

    def __init__(
        self, make: Callable[[int], Any], seed: int, spec: EnvSpec, watchdog: Watchdog,
        vector_env: HostVectorEnv | None = None,
    ) -> None:  # fmt: skip
        self._make, self._seed, self._spec = make, seed, spec
        self._env, self._watchdog = spec.name, watchdog
        self._vector_env: HostVectorEnv = vector_env or watchdog.start_env(spec, make, seed)
        self.num_envs = self._vector_env.num_envs
        self._validator = TimeStepValidator(spec, self.num_envs)
        self._steps = 0

    def reset(self) -> TimeStep:
        timestep = self._watchdog.call(self._env, "its reset", self._vector_env.reset, factor=_START_FACTOR)
        return self._validate(timestep, "its reset")

    def step(self, action: Action) -> TimeStep:
        self._watchdog.raise_if_stopped()
        self._steps += 1
        operation = f"step {self._steps:,}"
        try:
            return self._validate(self._watchdog.call(self._env, operation, self._vector_env.step, action), operation)
        except EnvironmentFault as fault:
            self._watchdog.count_restart(fault)
            return self._restart()

    def _restart(self) -> TimeStep:
        """Restart all environments of the batch: episodes are cut off, and transitions across the restart masked."""
        with contextlib.suppress(Exception):  # its processes may be gone
            self._vector_env.abort()
        close_in_time(self._vector_env)
        seed = int(np.random.SeedSequence([self._seed % 2**32, self._watchdog.restarts]).generate_state(1)[0])
        before, self._vector_env = self._vector_env, self._watchdog.start_env(self._spec, self._make, seed)
        self._watchdog.forget(before)
        return self.reset()

    def _validate(self, timestep: TimeStep, operation: str) -> TimeStep:
        if error := self._validator.error(timestep):
            raise EnvironmentFault(f"environment {self._env!r} failed in {operation}: {error}")
        for line, trace in self._vector_env.pop_faults():
            fault = EnvironmentFault(f"environment {self._env!r} failed in {operation}: {line}")
            fault.add_note(trace)
            self._watchdog.count_restart(fault)
        self._watchdog.warn(self._env, [*self._validator.warnings(timestep), *self._vector_env.warnings()], operation)
        return timestep

    def task_ids(self) -> np.ndarray:
        return self._vector_env.task_ids()

    def positions(self) -> np.ndarray:
        return self._vector_env.positions()

    def stages_reached(self) -> np.ndarray | None:
        return self._vector_env.stages_reached()

    def render(self) -> np.ndarray:
        return self._watchdog.call(self._env, "its rendering", self._vector_env.render)

    def close(self) -> None:
        self._watchdog.call(self._env, "its closing", self._vector_env.close)


def run_watched(
    envs: Sequence[HostEnvironment], limit: float, work: Callable[[list[HostEnvironment]], T], *, max_restarts: int = 0
) -> T:
    """Return `work(envs)`, run in a thread in which each step may take `limit` seconds."""
    watchdog = Watchdog(limit, max_restarts=max_restarts)
    return watchdog.run(lambda: work(watchdog.wrap(envs)))


def _format_stack(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    return "Its thread has ended." if frame is None else "".join(["It hangs here:\n", *traceback.format_stack(frame)])
