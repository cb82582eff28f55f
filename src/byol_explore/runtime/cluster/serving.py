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
from byol_explore.runtime.cluster.assembling import Assembler, Chosen, observation_in
from byol_explore.runtime.cluster.joining import Order
from byol_explore.runtime.cluster.stepping import OBSERVATION
from byol_explore.runtime.cluster.wire import Greeting, Hearing, action_layout, prepare
from byol_explore.runtime.host_actor import Rollout
from byol_explore.types import Action, Array, Memory, Policy, TimeStep

MAX_WAIT = 0.001  # seconds that the first request of a batch waits for others
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
        self.asked_at: float | None = None  # when, if the last request was not answered yet


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
        self._answer_size = action_layout(spec.action, order.num_envs).dtype.itemsize
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

    def _see(self, caller: Caller, frame: np.ndarray) -> None:
        assert caller.assembler is not None
        rollout = caller.assembler.see(frame)
        caller.asked_at = time.perf_counter()
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

    def _patience(self) -> float:
        """Seconds until the first request has waited for long enough."""
        if self._actor is None or not (times := [at for _, at in self._waiting()]):
            return 0.5
        return max(0.0, min(times) + MAX_WAIT - time.perf_counter())

    def _waiting(self) -> list[tuple[Caller, float]]:
        """Those that have asked, and when; but for those whose sequences nobody has fetched."""
        most = self._order.config.runtime.queue_size
        return [
            (each, each.asked_at)
            for each in self._callers.values()
            if each.asked_at is not None and len(each.done) <= most
        ]

    def _answer(self) -> None:
        waiting = self._waiting()
        if not waiting or self._actor is None:
            return
        is_all = all(each.asked_at is not None for each in self._callers.values() if each.number >= 0)
        if not is_all and time.perf_counter() < min(at for _, at in waiting) + MAX_WAIT:
            return
        with self._lock:
            actor, step = self._actor
        callers = [caller for caller, _ in waiting]
        began = time.perf_counter()
        chosen = self._policy(actor, callers)
        words = _bytes_by_environment(chosen.action)
        seconds, share = (time.perf_counter() - began) / len(callers), self._order.num_envs
        for place, (caller, asked_at) in enumerate(waiting):
            assert caller.assembler is not None
            caller.assembler.choose(chosen, place, step, seconds)
            caller.asked_at = None
            if self._send(caller, *(each[place * share : (place + 1) * share] for each in words)):
                self._waits.append(time.perf_counter() - asked_at)
        self._batches.append(len(callers) * share)

    def _send(self, caller: Caller, discrete: np.ndarray, continuous: np.ndarray) -> bool:
        """An answer is small: it always fits into what the system keeps for a connection that reads nothing else."""
        words = discrete.tobytes() + continuous.tobytes()
        assert len(words) == self._answer_size
        try:
            caller.connection.sendall(words)
        except OSError:
            self._leave(caller)
            return False
        self._sent += len(words)
        return True


def _bytes_by_environment(action: Action) -> tuple[np.ndarray, np.ndarray]:
    """As they go over the wire."""
    return np.ascontiguousarray(action.discrete, "<i4"), np.ascontiguousarray(action.continuous, "<f4")


class _Policy:
    """Acts for some actors at once, and keeps the memories of all; one more place is for what fills up a batch."""

    def __init__(self, spec: Any, num_envs: int, entropy: list[int]) -> None:
        self._spec, self._num_envs = spec, num_envs
        self._key: Array = jax.random.key(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
        self._memory: Memory | None = None

    def __call__(self, actor: Actor, callers: list[Caller]) -> Chosen:
        """What is chosen for the last observations of each, one caller after the other."""
        assemblers = [caller.assembler for caller in callers if caller.assembler is not None]
        frames, numbers = [each.frame for each in assemblers], [caller.number for caller in callers]
        share, extra = len(frames[0]["reward"]), _next_power(len(frames)) - len(frames)
        if self._memory is None:
            self._memory = actor.initial_memory(self._spec, self._num_envs + share)
        slots = [np.arange(number * share, (number + 1) * share) for number in numbers]
        slots += [np.arange(self._num_envs, self._num_envs + share)] * extra
        frames += frames[-1:] * extra
        seen = {name: np.concatenate([frame[name] for frame in frames]) for name in _read(frames[0])}
        timestep = TimeStep(observation_in(seen), seen["reward"], np.zeros(0), seen["is_first"], np.zeros(0))
        self._memory, before, policy, action, self._key = _act_for_some(
            actor, self._memory, np.concatenate(slots), timestep, self._key
        )
        wanted = before if any(each.begins for each in assemblers) else None
        return Chosen(*jax.device_get((action, policy, wanted)))


def _read(frame: Any) -> list[str]:
    """The arrays of a frame that a policy looks at."""
    return [name for name in frame.dtype.names if name.startswith(OBSERVATION) or name in ("reward", "is_first")]


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
