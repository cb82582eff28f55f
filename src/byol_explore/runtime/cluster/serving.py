"""The inference server: one policy acts for environments that are stepped elsewhere (the shape of SEED).

Requests of several actors are answered together: as soon as all that are connected have asked, or when the first of
them has waited for long enough. Recurrent states stay here, one per environment, and sequences are put together here.
An actor whose sequences nobody fetches gets no answer until somebody does, which is what holds it up.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from byol_explore.agent import act
from byol_explore.networks.assembly import Actor
from byol_explore.runtime.cluster.assembling import Assembler, observation_in
from byol_explore.runtime.cluster.joining import Order
from byol_explore.runtime.cluster.wire import Greeting, Hearing, action_layout, prepare
from byol_explore.runtime.host_actor import Rollout
from byol_explore.types import Action, Array, Memory, Policy, TimeStep

MAX_WAIT = 0.005  # seconds that the first request of a batch waits for others
KEPT = 10_000  # requests and batches that statistics are of


class Statistics(NamedTuple):
    """Of the last requests."""

    waits: list[float]  # seconds from a request to its answer
    batches: list[int]  # environments that were acted for at once
    received: int  # bytes
    sent: int
    steps: int  # of environments


class Caller:
    """An actor that is connected."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.hearing = connection, Hearing()
        self.number = -1
        self.assembler: Assembler | None = None
        self.done: deque[Rollout] = deque()  # sequences that nobody has fetched
        self.frame: dict[str, np.ndarray] | None = None  # a request that was not answered yet
        self.asked_at = 0.0


class Server:
    """Listens, acts and assembles in a thread of its own."""

    def __init__(self, order: Order, spec: Any, token: str, host: str) -> None:
        self._order, self._spec, self._token = order, spec, token
        self._policy = _Policy(spec, order.config.runtime.num_envs, order.entropy)
        self._actor: tuple[Actor, int] | None = None  # parameters, and the learner's step
        self._callers: dict[socket.socket, Caller] = {}
        self._finished: deque[Rollout] = deque()  # of actors that have gone
        self._lock = threading.Condition()
        self._is_closed = False
        self.failure: BaseException | None = None
        self._waits: deque[float] = deque(maxlen=KEPT)
        self._batches: deque[int] = deque(maxlen=KEPT)
        self._received = self._sent = self._steps = 0
        self._listener = socket.create_server((host, 0), backlog=1024)
        self._listener.setblocking(False)
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._welcome)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: self._woken.recv(4096))
        threading.Thread(target=self._run, daemon=True, name="serving").start()

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.getsockname()[:2]

    def receive(self, parameters: Actor | None, step: int) -> None:
        """Whoever acts next acts with these."""
        with self._lock:
            if parameters is not None:
                self._actor = jax.device_put(parameters), step
            elif self._actor is not None:
                self._actor = self._actor[0], max(step, self._actor[1])
        self._wake()

    def take(self, seconds: float) -> list[Rollout]:
        """All finished sequences, after so many seconds at most if there are none."""
        with self._lock:
            self._lock.wait_for(lambda: self._count() > 0 or self.failure is not None, seconds)
            if self.failure is not None:
                raise self.failure
            taken = list(self._finished)
            self._finished.clear()
            for caller in self._callers.values():
                taken += caller.done
                caller.done.clear()
        self._wake()
        return taken

    def statistics(self) -> Statistics:
        with self._lock:
            received = self._received + sum(caller.hearing.received for caller in self._callers.values())
        return Statistics(list(self._waits), list(self._batches), received, self._sent, self._steps)

    def close(self) -> None:
        self._is_closed = True
        self._wake()

    def _count(self) -> int:
        return len(self._finished) + sum(len(caller.done) for caller in self._callers.values())

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is closed already, or about to look anyway
            self._waker.send(b"!")

    def _run(self) -> None:
        try:
            while not self._is_closed:
                for key, _ in self._selector.select(self._patience()):
                    key.data()
                self._answer()
        except BaseException as error:
            with self._lock:
                self.failure = error
                self._lock.notify_all()
        finally:
            for connection in [*self._callers, self._listener, self._woken]:
                connection.close()

    # Requests

    def _welcome(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        prepare(connection)
        caller = Caller(connection)
        with self._lock:
            self._callers[connection] = caller
        self._selector.register(connection, selectors.EVENT_READ, partial(self._hear, caller))

    def _hear(self, caller: Caller) -> None:
        try:
            heard = caller.hearing.hear(caller.connection)
            if isinstance(heard, Greeting):
                self._greet(caller, heard)
            elif heard is not None:
                self._see(caller, heard)
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self._leave(caller)

    def _greet(self, caller: Caller, greeting: Greeting) -> None:
        """A new actor takes the place of one that had the same environments."""
        share = self._order.num_envs
        if greeting.token != self._token or not 0 <= greeting.actor < self._order.config.runtime.actors:
            raise ValueError("a stranger")
        for other in [each for each in self._callers.values() if each.number == greeting.actor]:
            self._leave(other)
        caller.number = greeting.actor
        numbers = np.arange(caller.number * share, (caller.number + 1) * share)
        caller.assembler = Assembler(numbers, self._order.config.runtime.sequence_length)

    def _see(self, caller: Caller, frame: dict[str, np.ndarray]) -> None:
        assert caller.assembler is not None
        rollout = caller.assembler.see(frame)
        caller.frame, caller.asked_at = frame, time.perf_counter()
        self._steps += self._order.num_envs
        if rollout is not None:
            with self._lock:
                caller.done.append(rollout)
                self._lock.notify_all()

    def _leave(self, caller: Caller) -> None:
        """Once: an actor may have lost its place to another one in the same moment in which its connection ends."""
        with self._lock:
            if self._callers.pop(caller.connection, None) is None:
                return
            self._finished += caller.done
            self._received += caller.hearing.received
        self._selector.unregister(caller.connection)
        caller.connection.close()

    # Answers

    def _waiting(self) -> list[Caller]:
        """Those that have asked and may be answered, the first to ask first."""
        most = self._order.config.runtime.queue_size
        waiting = [each for each in self._callers.values() if each.frame is not None and len(each.done) <= most]
        return sorted(waiting, key=lambda caller: caller.asked_at)

    def _patience(self) -> float:
        """Seconds until the first request has waited for long enough."""
        waiting = self._waiting() if self._actor is not None else []
        return max(0.0, waiting[0].asked_at + MAX_WAIT - time.perf_counter()) if waiting else 0.5

    def _answer(self) -> None:
        waiting = self._waiting()
        if not waiting or self._actor is None:
            return
        able = [each for each in self._callers.values() if each.number >= 0 and (each.frame is None or each in waiting)]
        if len(waiting) < len(able) and time.perf_counter() < waiting[0].asked_at + MAX_WAIT:
            return
        with self._lock:
            actor, step = self._actor
        began = time.perf_counter()
        frames: list[Any] = [caller.frame for caller in waiting]
        numbers = [caller.number for caller in waiting]
        actions, policies, memories = self._policy(actor, numbers, frames, any(_begins(each) for each in waiting))
        seconds = (time.perf_counter() - began) / len(waiting)
        for place, caller in enumerate(waiting):
            assert caller.assembler is not None
            memory = memories[place] if memories else None
            caller.assembler.choose(actions[place], policies[place], memory, step, seconds)
            caller.frame = None
            self._send(caller, actions[place])
        self._batches.append(len(waiting) * self._order.num_envs)

    def _send(self, caller: Caller, action: Action) -> None:
        """An answer is small: it always fits into what the system keeps for a connection that reads nothing else."""
        words = np.ascontiguousarray(action.discrete, "<i4").tobytes()
        words += np.ascontiguousarray(action.continuous, "<f4").tobytes()
        assert len(words) == action_layout(self._spec.action, self._order.num_envs).nbytes
        try:
            caller.connection.sendall(words)
        except OSError:
            self._leave(caller)
            return
        self._sent += len(words)
        self._waits.append(time.perf_counter() - caller.asked_at)


def _begins(caller: Caller) -> bool:
    return caller.assembler is not None and caller.assembler.begins


class _Policy:
    """Acts for some actors at once, and keeps the memories of all; one more place is for what fills up a batch."""

    def __init__(self, spec: Any, num_envs: int, entropy: list[int]) -> None:
        self._spec, self._num_envs = spec, num_envs
        self._key: Array = jax.random.key(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
        self._memory: Memory | None = None

    def __call__(
        self, actor: Actor, numbers: list[int], frames: list[dict[str, np.ndarray]], wants_memories: bool
    ) -> tuple[list[Action], list[Policy], list[Memory]]:
        """Of each of them its actions, its policies and, if wanted, its memories before."""
        share, count = len(frames[0]["reward"]), len(frames)
        if self._memory is None:
            self._memory = actor.initial_memory(self._spec, self._num_envs + share)
        slots = [np.arange(number * share, (number + 1) * share) for number in numbers]
        extra = _next_power(count) - count
        slots += [np.arange(self._num_envs, self._num_envs + share)] * extra
        frames = [*frames, *[frames[-1]] * extra]
        timestep = TimeStep(
            jax.tree.map(lambda *xs: np.concatenate(xs), *map(observation_in, frames)),
            np.concatenate([frame["reward"] for frame in frames]), np.zeros(0),
            np.concatenate([frame["is_first"] for frame in frames]), np.zeros(0),
        )  # fmt: skip
        self._memory, before, policy, action, self._key = _act_for_some(
            actor, self._memory, np.concatenate(slots), timestep, self._key
        )
        action, policy = jax.device_get((action, policy))
        before = jax.device_get(before) if wants_memories else None

        def cut(tree: Any) -> list[Any]:
            return [jax.tree.map(lambda x, i=i: x[i * share : (i + 1) * share], tree) for i in range(count)]

        return cut(action), cut(policy), cut(before) if wants_memories else []


def _next_power(number: int) -> int:
    """Of two, at least as large: few shapes, so that few programs are compiled."""
    return 1 << (number - 1).bit_length()


@partial(jax.jit, donate_argnums=1)
def _act_for_some(
    actor: Actor, memories: Memory, slots: Array, timestep: TimeStep, key: Array
) -> tuple[Memory, Memory, Policy, Action, Array]:
    """Actions of the environments in these slots; the memories of all, and theirs before."""
    key, act_key = jax.random.split(key)
    before = jax.tree.map(lambda all_of_them: all_of_them[slots], memories)
    after, policy, action = act(actor, before, timestep, act_key)
    memories = jax.tree.map(lambda old, new: old.at[slots].set(new), memories, after)
    return memories, before, policy, action, key
