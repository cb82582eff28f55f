"""One environment of DM-HARD-8: its server, its connection and its world, from one episode to the next.

A server may be lost at any time. An episode that was under way ends with what was seen last and counts as cut off; the
next one begins in a new world, on the same server or on a new one.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from byol_explore.envs.adapters.dm_hard_eight_connection import MESSAGES, Connection, Lost, Refused, Strange, connect
from byol_explore.envs.adapters.dm_hard_eight_protocol import STILL, Specs, create_request, join_request
from byol_explore.envs.adapters.dm_hard_eight_servers import Server, start
from byol_explore.envs.adapters.dm_hard_eight_settings import DMHardEightSettings
from byol_explore.errors import EnvironmentFailure

_STATES = MESSAGES.EnvironmentStateType
_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds before a lost server is asked again, doubled each time
_FAREWELL = 2.0  # seconds that a server has to take leave


class Moment(NamedTuple):
    """What a step led to."""

    observation: dict[str, np.ndarray]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @property
    def is_last(self) -> bool:
        return self.terminated or self.truncated


class Joined(NamedTuple):
    """A world that has been joined."""

    name: str
    specs: Specs


class World:
    """Asked by one thread at a time; only `abort` may come while another one waits for an answer."""

    def __init__(self, env: str, task: str, kinds: dict[str, Any], settings: DMHardEightSettings, seed: int) -> None:
        self._env, self._task, self._kinds, self._settings = env, task, kinds, settings
        self._random = np.random.default_rng(seed)
        self._server: Server | None = None
        self._connection: Connection | None = None
        self._joined: Joined | None = None
        self._now: Moment | None = None  # None before the first episode
        self._losses = 0  # since an episode came to its end
        self._is_aborted = threading.Event()
        self.doubts: list[str] = []  # about the last answer

    def reset(self) -> Moment:
        """A new episode, whatever was before."""
        with self._in_one_line():
            return self._begin(again=self._now is not None and not self._now.is_last)

    def step(self, actions: dict[str, float]) -> Moment:
        """What an action leads to; behind the end of an episode the beginning of the next one."""
        assert self._now is not None
        with self._in_one_line():
            if self._now.is_last:
                return self._begin()
            try:
                self._now = self._repeat(actions)
                self._losses = 0 if self._now.is_last else self._losses
            except Lost as loss:
                self.doubts = [f"an episode is cut off, its server {self._address} was lost: {loss}"]
                self._lose(loss)
                self._now = Moment(self._now.observation, truncated=True)
            return self._now

    def close(self) -> None:
        """Take leave of a server that goes on, and end one that was started for this."""
        if self._connection and self._joined and not self._is_aborted.is_set():
            with contextlib.suppress(Lost, Refused, Strange, EnvironmentFailure):
                self._ask(MESSAGES.LeaveWorldRequest(), _FAREWELL)
                self._ask(MESSAGES.DestroyWorldRequest(world_name=self._joined.name), _FAREWELL)
        self._leave()

    def abort(self) -> None:
        """From any thread: whoever waits for an answer will not get it."""
        self._is_aborted.set()
        if connection := self._connection:
            connection.close()
        if server := self._server:
            server.end()

    # Episodes

    def _begin(self, *, again: bool = False) -> Moment:
        """The first observation of an episode, in the world that there is or in a new one."""
        deadline = time.monotonic() + self._settings.start_timeout
        while True:
            try:
                self._now = self._first(deadline, again=again)
                return self._now
            except Lost as loss:
                pause = min(_PAUSE * 2**self._losses, _LONGEST_PAUSE)
                if time.monotonic() + pause >= deadline:
                    limit = f"{self._settings.start_timeout:g} s (env_settings.start_timeout)"
                    raise self._failure(f"is not ready after {limit}: {loss}") from None
                self._lose(loss)
                self._is_aborted.wait(pause)

    def _first(self, deadline: float, *, again: bool) -> Moment:
        if self._joined is None:
            self._joined = self._join(deadline)
        elif again:
            answer = self._ask(MESSAGES.ResetRequest(), deadline - time.monotonic())
            self._joined = Joined(self._joined.name, Specs(answer.specs, self._kinds))
        moment = self._ask_for_step(STILL, deadline - time.monotonic())
        if moment.is_last:
            raise Strange("its episode ends with its first observation")
        return moment._replace(reward=0.0)

    def _repeat(self, actions: dict[str, float]) -> Moment:
        """The steps that an action lasts; none of them goes beyond the end of the episode."""
        moment = self._ask_for_step(actions, self._settings.answer_timeout)
        for _ in range(self._settings.action_repeat - 1):
            if moment.is_last:
                break
            before, moment = moment, self._ask_for_step(actions, self._settings.answer_timeout)
            moment = moment._replace(reward=before.reward + moment.reward)
        return moment

    # The server

    def _join(self, deadline: float) -> Joined:
        """A new world, on a new server where the old one has gone."""
        if self._server is None:
            self._server = start(self._settings)
        if self._connection is None:
            self._connection = connect(self._server.address, deadline, self._watch, self._is_aborted.wait)
        create = create_request(self._task, int(self._random.integers(2**31)))
        try:
            name = self._ask(create, deadline - time.monotonic()).world_name
        except Refused as error:
            raise Refused(f"{error}; if it has room for one world only, give a server for each environment") from None
        join = join_request(name, self._settings.height, self._settings.width)
        return Joined(name, Specs(self._ask(join, deadline - time.monotonic()).specs, self._kinds))

    def _ask_for_step(self, actions: dict[str, float], seconds: float) -> Moment:
        assert self._joined is not None
        answer = self._ask(self._joined.specs.step_request(actions), seconds)
        if answer.state not in (_STATES.RUNNING, _STATES.TERMINATED, _STATES.INTERRUPTED):
            raise Strange(f"its answer to step has the state {answer.state}")
        observation, reward = self._joined.specs.read(answer)
        return Moment(observation, reward, answer.state == _STATES.TERMINATED, answer.state == _STATES.INTERRUPTED)

    def _ask(self, request: Any, seconds: float) -> Any:
        assert self._connection is not None
        return self._connection.ask(request, max(0.0, seconds), self._watch)

    def _watch(self) -> None:
        if self._is_aborted.is_set():
            raise self._failure("is not waited for any more")
        if self._server:
            self._server.check()

    def _lose(self, loss: Lost) -> None:
        """The next episode will have another connection, unless there have been too many."""
        self._losses += 1
        if self._is_aborted.is_set() or self._losses > self._settings.reconnects:
            times = f"{self._losses} times" if self._losses > 1 else "once"
            raise self._failure(f"was lost {times} without an episode coming to its end, at last because {loss}")
        self._leave()

    def _leave(self) -> None:
        if self._connection:
            self._connection.close()
        if self._server:
            self._server.end()
        self._server = self._connection = self._joined = None

    # Words

    @property
    def _address(self) -> str:
        return self._server.address if self._server else "none"

    def _failure(self, what: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"environment {self._env!r}: its server {self._address} {what}")

    @contextlib.contextmanager
    def _in_one_line(self) -> Iterator[None]:
        """What a server says that nothing can be made of is a failure, and reconnecting would not mend it."""
        self.doubts = []
        try:
            yield
        except (Refused, Strange) as error:
            raise self._failure(f"cannot be played on: {error}") from None
