"""DM-HARD-8: `dm-hard-eight:drawbridge` and the seven other tasks, on servers that speak dm_env_rpc.

Observations and actions are those of `hard-eight:TASK`, so that one agent plays both; the acceleration that the
original offers is not requested.

A server may be lost at any time. The running episode ends with the last observation and counts as truncated; the next
episode begins in a new world, on the same server or on a new one.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, TypeVar

import numpy as np

from byol_explore.envs.dm_hard_eight.client import (
    ACTION,
    NO_OP,
    DmEnvRpcStream,
    ProtocolError,
    ServerRefused,
    WorldSpecs,
    connect,
    instruction,
    messages,
    pack_settings,
    to_native_actions,
)
from byol_explore.envs.dm_hard_eight.servers import Server, ServerLost, check_location, start_server
from byol_explore.envs.families import LEVELS, PREFIX, DMHardEightSettings
from byol_explore.envs.hard_eight.tasks import observation_spaces
from byol_explore.envs.host_vector import TimeStepBuilder
from byol_explore.envs.interface import EnvSpec, HostEnvironment, HostVectorEnv
from byol_explore.errors import EnvironmentFailure, unknown_name
from byol_explore.types import Action, TimeStep

_STATES = messages.EnvironmentStateType
_PAUSE, _MAX_PAUSE = 0.2, 5.0  # seconds before a lost server is contacted again, doubled each time
_LEAVE_SECONDS = 2.0  # for leaving a world when closing


class ServerStep(NamedTuple):
    """Result of a step."""

    observation: dict[str, np.ndarray]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @property
    def is_last(self) -> bool:
        return self.terminated or self.truncated


class JoinedWorld(NamedTuple):
    """A world that this session has joined."""

    name: str
    task: int
    specs: WorldSpecs


class Session:
    """One environment: its server, stream and world. One thread at a time calls it, except for `abort`."""

    def __init__(self, tasks: Sequence[str], spaces: dict[str, Any], settings: DMHardEightSettings, seed: int) -> None:
        self._tasks, self._spaces, self._settings = tasks, spaces, settings
        self.task = 0  # of this episode
        self._random = np.random.default_rng(seed)
        self._server: Server | None = None
        self._stream: DmEnvRpcStream | None = None
        self._world: JoinedWorld | None = None
        self._last: ServerStep | None = None  # None before the first episode
        self._losses = 0  # of servers, since an episode came to its end
        self._is_aborted = threading.Event()
        self.warnings: list[str] = []  # about the last step

    def reset(self) -> ServerStep:
        """Begin a new episode."""
        with self._failures_in_one_line():
            return self._begin(is_running=self._last is not None and not self._last.is_last)

    def step(self, actions: dict[str, float]) -> ServerStep:
        """Step by native actions; after the end of an episode begin the next one."""
        assert self._last is not None
        with self._failures_in_one_line():
            if self._last.is_last:
                return self._begin()
            try:
                self._last = self._repeat(actions)
                self._losses = 0 if self._last.is_last else self._losses
            except ServerLost as loss:
                self.warnings = [f"an episode is cut off, its server {self._address} was lost: {loss}"]
                self._handle_loss(loss)
                self._last = ServerStep(self._last.observation, truncated=True)
            return self._last

    def close(self) -> None:
        """Leave the world; end a server that was launched for it."""
        if self._stream and self._world and not self._is_aborted.is_set():
            with contextlib.suppress(ServerLost, ServerRefused, ProtocolError, EnvironmentFailure):
                self._leave_world(self._world.name, _LEAVE_SECONDS)
        self._disconnect()

    def abort(self) -> None:
        """Give up pending requests, from any thread."""
        self._is_aborted.set()
        self._close_connection()

    # Episodes

    def _begin(self, *, is_running: bool = False) -> ServerStep:
        """Return the first observation of an episode, in the joined world or in a new one."""
        deadline = time.monotonic() + self._settings.start_timeout
        if len(self._tasks) > 1:
            self.task = int(self._random.integers(len(self._tasks)))
        while True:
            try:
                self._last = self._first_step(deadline, is_running=is_running)
                return self._last
            except ServerLost as loss:
                pause = min(_PAUSE * 2**self._losses, _MAX_PAUSE)
                if time.monotonic() + pause >= deadline:
                    limit = f"{self._settings.start_timeout:g} s (dm_hard_eight.start_timeout)"
                    raise self._failure(f"is not ready after {limit}: {loss}") from None
                self._handle_loss(loss)
                self._is_aborted.wait(pause)

    def _first_step(self, deadline: float, *, is_running: bool) -> ServerStep:
        if self._world is not None and self._world.task != self.task:
            self._leave_world(self._world.name, deadline - time.monotonic())
            self._world = None
        if self._world is None:
            self._world = self._join(deadline)
        elif is_running:
            response = self._request(messages.ResetRequest(), deadline - time.monotonic())
            self._world = self._world._replace(specs=WorldSpecs(response.specs, self._spaces))
        step = self._request_step(NO_OP, deadline - time.monotonic())
        if step.is_last:
            raise ProtocolError("its episode ends with its first observation")
        return step._replace(reward=0.0)

    def _repeat(self, actions: dict[str, float]) -> ServerStep:
        """Repeat an action until the end of the episode at most."""
        steps: list[ServerStep] = []
        while len(steps) < self._settings.action_repeat and not (steps and steps[-1].is_last):
            steps.append(self._request_step(actions, self._settings.answer_timeout))
        return steps[-1]._replace(reward=sum(step.reward for step in steps))

    # The server

    def _join(self, deadline: float) -> JoinedWorld:
        """Create and join a world, on a new server if the old one was lost."""
        if self._server is None:
            self._server = start_server(self._settings)
        if self._stream is None:
            self._stream = connect(self._server.address, deadline, self._watch, self._is_aborted.wait)
        create = pack_settings(
            seed=self._random.integers(2**31), episodeId=np.int64(0), levelName=LEVELS[self._tasks[self.task]].name
        )
        try:
            request = messages.CreateWorldRequest(settings=create)
            name = self._request(request, deadline - time.monotonic()).world_name
        except ServerRefused as error:
            raise ServerRefused(
                f"{error}; if it has room for one world only, give a server for each environment"
            ) from None
        join = pack_settings(width=np.int64(self._settings.width), height=np.int64(self._settings.height))
        request = messages.JoinWorldRequest(world_name=name, settings=join)
        specs = self._request(request, deadline - time.monotonic()).specs
        return JoinedWorld(name, self.task, WorldSpecs(specs, self._spaces))

    def _leave_world(self, name: str, seconds: float) -> None:
        self._request(messages.LeaveWorldRequest(), seconds)
        self._request(messages.DestroyWorldRequest(world_name=name), seconds)

    def _request_step(self, actions: dict[str, float], seconds: float) -> ServerStep:
        assert self._world is not None
        response = self._request(self._world.specs.step_request(actions), seconds)
        if response.state not in (_STATES.RUNNING, _STATES.TERMINATED, _STATES.INTERRUPTED):
            raise ProtocolError(f"its answer to step has the state {response.state}")
        observation, reward = self._world.specs.read(response)
        terminated, truncated = response.state == _STATES.TERMINATED, response.state == _STATES.INTERRUPTED
        return ServerStep(observation, reward, terminated, truncated)

    def _request(self, request: Any, seconds: float) -> Any:
        assert self._stream is not None
        return self._stream.request(request, max(0.0, seconds), self._watch)

    def _watch(self) -> None:
        if self._is_aborted.is_set():
            raise self._failure("is not waited for any more")
        if self._server:
            self._server.check_alive()

    def _handle_loss(self, loss: ServerLost) -> None:
        """Let the next episode connect again, unless too many servers were lost in a row."""
        self._losses += 1
        if self._is_aborted.is_set() or self._losses > self._settings.max_reconnects:
            times = f"{self._losses} times" if self._losses > 1 else "once"
            raise self._failure(f"was lost {times} without the end of an episode, at last because {loss}")
        self._disconnect()

    def _disconnect(self) -> None:
        self._close_connection()
        self._server = self._stream = self._world = None

    def _close_connection(self) -> None:
        for part in (self._stream, self._server):
            if part:
                part.close()

    # Messages

    @property
    def _address(self) -> str:
        return self._server.address if self._server else "none"

    def _failure(self, text: str) -> EnvironmentFailure:
        return EnvironmentFailure(f"environment {PREFIX + self._tasks[self.task]!r}: its server {self._address} {text}")

    @contextlib.contextmanager
    def _failures_in_one_line(self) -> Iterator[None]:
        """Turn a server's errors into failures: reconnecting would not help."""
        self.warnings = []
        try:
            yield
        except (ServerRefused, ProtocolError) as error:
            raise self._failure(f"cannot be played on: {error}") from None


NO_LIMIT = 100_000  # assumed limit of actions of an episode: the original's limits are not public
LARGE_APPLE = 5.0  # a larger last reward is that of the large apple, 10; all others are far smaller

T = TypeVar("T")


class DMHardEight(HostEnvironment):
    """One task of the original DM-HARD-8."""

    def __init__(self, task: str, settings: DMHardEightSettings | None = None) -> None:
        if task not in LEVELS:
            raise unknown_name("task of dm-hard-eight", task, list(LEVELS))
        self.task, self.settings = task, settings or DMHardEightSettings()
        check_location(PREFIX + task, self.settings)
        level = LEVELS[task]
        self.spec = EnvSpec(
            name=PREFIX + task,
            observation=observation_spaces(self.settings.height, self.settings.width),
            action=ACTION,
            max_steps=NO_LIMIT,
            success_threshold=9.0,
            reference_scores=(level.random, level.human),
        )

    def make_vector_env(self, num_envs: int, seed: int) -> "DMHardEightBatch":
        return DMHardEightBatch([self], num_envs, seed)

    def make_random_task_env(self, others: Sequence[Any], num_envs: int, seed: int) -> "DMHardEightBatch | None":
        if any(not isinstance(other, DMHardEight) or other.settings != self.settings for other in others):
            return None
        return DMHardEightBatch([self, *others], num_envs, seed)


class DMHardEightBatch(HostVectorEnv):
    """Environments that are stepped together, each with a session and a thread of its own."""

    def __init__(self, envs: Sequence[DMHardEight], num_envs: int, seed: int) -> None:
        self.num_envs, tasks, settings = num_envs, [env.task for env in envs], envs[0].settings
        spaces = observation_spaces(settings.height, settings.width)
        seeds = np.random.SeedSequence(seed % 2**32).generate_state(num_envs)
        self._sessions = [Session(tasks, spaces, settings, int(each)) for each in seeds]
        self._threads = ThreadPoolExecutor(num_envs, thread_name_prefix="dm-hard-eight")
        self._timesteps, self._is_closed = TimeStepBuilder(num_envs), False
        self._observation = {name: np.zeros((num_envs, *space.shape), space.dtype) for name, space in spaces.items()}
        self._instructions = np.stack([instruction(task) for task in tasks])

    def reset(self) -> TimeStep:
        self._store(self._call_all(lambda index: self._sessions[index].reset()))
        return self._timesteps.on_reset(self._observation)

    def step(self, action: Action) -> TimeStep:
        discrete, continuous = np.asarray(action.discrete), np.asarray(action.continuous)

        def step(index: int) -> ServerStep:
            return self._sessions[index].step(to_native_actions(continuous[index], int(discrete[index, 0])))

        steps = self._call_all(step)
        self._store(steps)
        _, *results = zip(*steps, strict=True)
        reward, terminated, truncated = map(np.array, results)
        success = terminated & (reward > LARGE_APPLE)
        return self._timesteps.on_step(self._observation, reward, terminated, truncated, success)

    def task_ids(self) -> np.ndarray:
        return np.array([session.task for session in self._sessions], np.int32)

    def warnings(self) -> list[str]:
        return [text for session in self._sessions for text in session.warnings]

    def render(self) -> np.ndarray:
        return self._observation["rgb"][0].copy()

    def close(self) -> None:
        if not self._is_closed:
            self._call_all(lambda index: self._sessions[index].close())
            self._threads.shutdown()
        self._is_closed = True

    def abort(self) -> None:
        for session in self._sessions:
            session.abort()

    def _store(self, steps: Sequence[ServerStep]) -> None:
        for index, step in enumerate(steps):
            for name, array in step.observation.items():
                self._observation[name][index] = array
        self._observation["instruction"][:] = self._instructions[self.task_ids()]

    def _call_all(self, function: Callable[[int], T]) -> list[T]:
        """Call a function of the index of each environment, in its thread; abort all others if one fails."""
        futures = [self._threads.submit(function, index) for index in range(self.num_envs)]
        done, others = wait(futures, return_when=FIRST_EXCEPTION)
        if failed := [future for future in done if future.exception()]:
            self.abort()
            wait(others)
            failed[0].result()
        return [future.result() for future in futures]
