"""Environments outside jit under guard: what fails or hangs in one of them ends in a line that names it.

Such environments are the code of others. They may raise, leave the process, answer in another shape, or never answer.
So they are asked in a thread of their own, and a `Guard` knows what they were asked for last. Whoever needs what that
thread makes of the answers waits with the guard, which gives up when one request has gone unanswered for too long: the
waiting thread is free then, hears every signal, and holds all that has been learned.

Only code that holds Python's lock while it hangs, inside an extension module, cannot be guarded like this; in
processes of their own (Atari, Gymnasium's async vectorization) environments cannot do that either.
"""

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar, runtime_checkable

import numpy as np

from byol_explore.envs.answers import Answers, Doubting
from byol_explore.envs.host import HostBatch, HostEnvironment, Partial, reached_in
from byol_explore.envs.protocols import EnvSpec
from byol_explore.errors import EnvironmentFailure, UserError, one_line
from byol_explore.types import Action, TimeStep

LOOK = 0.2  # seconds between two looks at what others are doing
_START = 10  # times as long as a step may it take to start or to reset environments

T = TypeVar("T")


@runtime_checkable
class Abortable(Protocol):
    """A batch in processes of its own."""

    def abort(self) -> None:
        """End them while another thread waits for an answer, which will not come."""
        ...


class Stop(Exception):
    """Nobody wants the next answer any more."""


class Request(NamedTuple):
    """What an environment was asked for."""

    env: str
    what: str
    limit: float  # seconds that it is given
    thread: int = 0  # that asks


class Guard:
    """Looks after the environments that one thread asks."""

    def __init__(self, limit: float, remarked: set[str] | None = None) -> None:
        self.limit = limit
        self._remarked = set() if remarked is None else remarked  # may be shared: each doubt is named once
        self._remarks: list[str] = []
        self._request: Request | None = None
        self._batches: list[HostBatch] = []
        self._is_stopped = False
        _Exits.trap()

    def protect(self, envs: Sequence[HostEnvironment]) -> list[HostEnvironment]:
        """The same environments, guarded."""
        return [GuardedEnvironment(env, self) for env in envs]

    def wait(self, is_done: Callable[[float], bool]) -> None:
        """Ask whether something is done, with the seconds that it may take to answer, until it is.

        An EnvironmentFailure when a request takes too long. Only time in which this thread looks counts, so that a
        process that was suspended and continues does not suspect its environments.
        """
        seen, waited = None, 0.0
        while not is_done(LOOK):
            waited = waited + LOOK if self._request is seen else 0.0
            seen = self._request
            if seen is not None and waited >= seen.limit:
                failure = EnvironmentFailure(
                    f"environment {seen.env!r} hangs: {seen.what} has taken more than {seen.limit:g} s "
                    "(runtime.step_timeout allows more)"
                )
                failure.add_note(_where(seen.thread))
                self.abort()
                raise failure

    def stop(self) -> None:
        """Environments are asked for no further step."""
        self._is_stopped = True

    def abort(self) -> None:
        """Give up whatever is under way; processes are ended, and a thread that hangs by itself is left alone."""
        self.stop()
        for batch in self._batches:
            if isinstance(batch, Abortable):
                with contextlib.suppress(Exception):  # the others must end too
                    batch.abort()

    def new_remarks(self) -> tuple[str, ...]:
        """What was doubtful about answers and has not been said before."""
        remarks, self._remarks = self._remarks, []
        return tuple(remarks)

    def start(self, env: HostEnvironment, num_envs: int, seed: int) -> HostBatch:
        batch = self.ask(Request(env.spec.name, "its start", _START * self.limit), env.batch, num_envs, seed)
        self._batches.append(batch)
        return batch

    def ask(self, request: Request, call: Callable[..., T], *arguments: Any) -> T:
        """What an environment answers; whatever it raises instead becomes a line that says what it was asked for."""
        self._request = request._replace(thread=threading.get_ident())
        try:
            with _Exits.caught():
                return call(*arguments)
        except UserError:
            raise
        except BaseException as error:
            why = str(error) if isinstance(error, _Exits.Left) else f"{type(error).__name__}: {one_line(error)}"
            raise EnvironmentFailure(f"environment {request.env!r} failed in {request.what}: {why}") from error
        finally:
            self._request = None

    def ask_for_step(self, request: Request, call: Callable[..., T], *arguments: Any) -> T:
        if self._is_stopped:
            raise Stop
        return self.ask(request, call, *arguments)

    def remark(self, env: str, doubts: Sequence[str], what: str) -> None:
        for doubt in doubts:
            text = f"environment {env!r}: {doubt}"
            if text not in self._remarked:
                self._remarked.add(text)
                self._remarks.append(f"{text} ({what})")


class GuardedEnvironment:
    """Starts guarded batches."""

    def __init__(self, env: HostEnvironment, guard: Guard) -> None:
        self._env, self._guard = env, guard

    @property
    def spec(self) -> EnvSpec:
        return self._env.spec

    def batch(self, num_envs: int, seed: int) -> "GuardedBatch":
        batch = self._guard.start(self._env, num_envs, seed)
        return (GuardedPartial if isinstance(batch, Partial) else GuardedBatch)(batch, self._env.spec, self._guard)


class GuardedBatch:
    """Environments whose every answer is waited for with a limit, and looked at."""

    def __init__(self, batch: HostBatch, spec: EnvSpec, guard: Guard) -> None:
        self.num_envs = batch.num_envs
        self._batch, self._env, self._guard = batch, spec.name, guard
        self._answers = Answers(spec, batch.num_envs)
        self._own_doubts = batch.doubts if isinstance(batch, Doubting) else list
        self._steps = 0

    def reset(self) -> TimeStep:
        request = Request(self._env, "its reset", _START * self._guard.limit)
        return self._looked_at(self._guard.ask(request, self._batch.reset), request.what)

    def step(self, action: Action) -> TimeStep:
        return self._step(self._batch.step, action)

    def _step(self, call: Callable[..., TimeStep], *arguments: Any) -> TimeStep:
        self._steps += 1
        request = Request(self._env, f"step {self._steps:,}", self._guard.limit)
        return self._looked_at(self._guard.ask_for_step(request, call, *arguments), request.what)

    def _looked_at(self, timestep: TimeStep, what: str) -> TimeStep:
        if mistake := self._answers.mistake(timestep):
            raise EnvironmentFailure(f"environment {self._env!r} failed in {what}: {mistake}")
        self._guard.remark(self._env, [*self._answers.doubts(timestep), *self._own_doubts()], what)
        return timestep

    def places(self) -> np.ndarray:
        return self._batch.places()

    def reached(self) -> np.ndarray | None:
        return reached_in(self._batch)

    def render(self) -> np.ndarray:
        return self._guard.ask(Request(self._env, "drawing it", self._guard.limit), self._batch.render)

    def close(self) -> None:
        self._guard.ask(Request(self._env, "closing it", self._guard.limit), self._batch.close)


class GuardedPartial(GuardedBatch):
    """Of which some can be stepped while the others stand still."""

    _batch: Any

    def step_some(self, action: Action, moving: np.ndarray) -> TimeStep:
        return self._step(self._batch.step_some, action, moving)


def guarded(envs: Sequence[HostEnvironment], limit: float, work: Callable[[list[HostEnvironment]], T]) -> T:
    """What some work with environments comes to, where each of their steps may take so many seconds."""
    guard, outcome = Guard(limit), Future()

    def run() -> None:
        try:
            outcome.set_result(work(guard.protect(envs)))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True, name="guarded").start()
    try:
        guard.wait(lambda seconds: bool(wait([outcome], seconds).done))
    except BaseException:
        guard.abort()
        raise
    return outcome.result()


def _where(thread: int) -> str:
    """The place in the code that a thread is at."""
    frame = sys._current_frames().get(thread)
    return "".join(["It hangs here:\n", *traceback.format_stack(frame)]) if frame is not None else "It has ended."


class _Exits:
    """Calls of `os._exit` by environments, which would end the process without a word."""

    class Left(BaseException):
        """Instead of the end of the process."""

    _exit: Callable[[int], NoReturn] = staticmethod(os._exit)
    _inside = threading.local()

    @classmethod
    def trap(cls) -> None:
        """From now on; others than environments leave as before."""
        os._exit = cls.leave

    @classmethod
    @contextlib.contextmanager
    def caught(cls) -> Any:
        """In this thread of this process: not in one that an environment forks."""
        cls._inside.process = os.getpid()
        try:
            yield
        finally:
            cls._inside.process = None

    @classmethod
    def leave(cls, status: int) -> NoReturn:
        if getattr(cls._inside, "process", None) == os.getpid():
            raise cls.Left(f"it left by os._exit({status})")
        cls._exit(status)
