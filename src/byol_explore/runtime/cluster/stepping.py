"""An actor that only steps environments: actions come from the inference server. Light: no JAX."""

import socket
import threading
import time
from typing import Any

import numpy as np

from byol_explore.envs.guarding import Guard, Stop
from byol_explore.envs.host import HostBatch, reached_in
from byol_explore.envs.host_tasks import make_batch, tasks_of
from byol_explore.runtime.cluster.joining import Order, environments_for
from byol_explore.runtime.cluster.wire import Frame, Greeting, Layout, action_layout, prepare, receive_exactly
from byol_explore.types import Action, TimeStep

OBSERVATION = "observation/"  # before the names of entries; alone where there is only one


class Stepping:
    """Environments, and a thread that asks them: whoever waits for it must not hang when an environment does."""

    def __init__(self, order: Order) -> None:
        config = order.config
        self._order, self._guard = order, Guard(config.runtime.step_timeout)
        self._spec: Any = None
        self._batch: HostBatch | None = None
        self._connection: socket.socket | None = None
        self._is_closed = False
        self._run(self._make)

    def _make(self) -> None:
        config = self._order.config
        envs = environments_for(self._order)
        seed = int(np.random.SeedSequence(self._order.entropy).generate_state(2)[1])
        self._spec = envs[0].spec
        self._batch = make_batch(self._guard.protect(envs), self._order.num_envs, seed, config.tasks)

    def play(self, address: tuple[str, int], token: str) -> None:
        """Step environments as the server says, from new episodes on, until it has gone; what stops them is raised."""
        self._run(lambda: self._play(address, token))

    def close(self) -> None:
        self._is_closed = True
        self._guard.stop()
        if self._connection is not None:
            self._connection.close()

    def _run(self, work: Any) -> None:
        """In a thread, guarded."""
        failures: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
            finally:
                done.set()

        threading.Thread(target=run, daemon=True, name="stepping").start()
        self._guard.wait(done.wait)
        if failures and not (self._is_closed and isinstance(failures[0], Stop)):
            raise failures[0]

    def _play(self, address: tuple[str, int], token: str) -> None:
        assert self._batch is not None
        batch = self._batch
        try:
            with socket.create_connection(address, self._guard.limit) as connection:
                self._connection = connection
                prepare(connection)
                connection.settimeout(None)
                arrays = frame_of(batch, batch.reset(), 0.0)
                layout = layout_of(arrays, self._spec.observation)
                connection.sendall(Greeting(token, self._order.number, self._order.attempt, layout).encode())
                told, answer = Frame(layout), Frame(action_layout(self._spec.action, batch.num_envs))
                while not self._is_closed:
                    connection.sendall(told.fill(arrays))
                    receive_exactly(connection, answer.buffer)
                    action = Action(answer.arrays["discrete"].copy(), answer.arrays["continuous"].copy())
                    began = time.perf_counter()
                    timestep = batch.step(action)
                    arrays = frame_of(batch, timestep, time.perf_counter() - began)
        except OSError:  # the server has gone: whoever has asked knows where the next one is
            return


def layout_of(arrays: dict[str, np.ndarray], kinds: Any) -> Layout:
    """Observations have the dtype of their spec in every frame: that of the first answer may not hold the next."""
    named = {OBSERVATION + name: kinds[name] for name in kinds} if isinstance(kinds, dict) else {OBSERVATION: kinds}
    return Layout.of({name: x.astype(named[name].dtype) if name in named else x for name, x in arrays.items()})


def frame_of(batch: HostBatch, timestep: TimeStep, seconds: float) -> dict[str, np.ndarray]:
    """All that the server must know of a step, as arrays [E, ...] by name."""
    seen = timestep.observation
    entries = {OBSERVATION + name: seen[name] for name in seen} if isinstance(seen, dict) else {OBSERVATION: seen}
    reached = reached_in(batch)
    frame = {name: np.asarray(array) for name, array in entries.items()} | {
        "reward": np.asarray(timestep.reward, np.float32),
        "discount": np.asarray(timestep.discount, np.float32),
        "is_first": np.asarray(timestep.is_first, bool),
        "is_last": np.asarray(timestep.is_last, bool),
        "success": np.asarray(timestep.with_success().success, np.int8),
        "task": np.asarray(tasks_of(batch), np.int32),
        "places": np.asarray(batch.places()),
        "seconds": np.asarray([seconds], np.float32),
    }
    return frame if reached is None else frame | {"reached": np.asarray(reached, bool)}
