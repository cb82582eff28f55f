"""The inference server: one policy acts for environments that are stepped elsewhere (the shape of SEED RL).

Requests of several actors are answered in one batch: as soon as all connected actors wait for an action, or when the
first of them has waited for MAX_WAIT. Recurrent states stay in the server, one per environment, and rollouts are
assembled here.

Back-pressure: an actor with more than `queue_size` unfetched rollouts gets no actions.

Strangers may connect too. Before its token was checked, a connection has a limit of time, of size (`messages.py`) and
of number; without descriptors the server stops accepting for a moment. No message ends the server.
"""

import contextlib
import math
import selectors
import socket
import threading
import time
from collections import deque
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from byol_explore.agent.acting import select_action
from byol_explore.envs.interface import EnvSpec
from byol_explore.networks.representation import Actor
from byol_explore.runtime.cluster.env_stepper import OBSERVATION, check_layout
from byol_explore.runtime.cluster.messages import (
    ActorSpec,
    FrameBuffer,
    FrameReader,
    Handshake,
    action_dtype,
    configure_socket,
)
from byol_explore.runtime.rollouts import ActionBatch, Rollout, RolloutBuilder, unflatten_observation
from byol_explore.types import Action, Array, Policy, RecurrentState, TimeStep

MAX_WAIT = 0.001  # seconds that the first request of a batch waits for others
HANDSHAKE_SECONDS = 10.0  # from the connection to the whole handshake
MAX_STRANGERS = 128  # connections without a handshake, beside one for each actor; a newer one replaces the oldest
_PAUSE = 0.1  # seconds without accepting after that failed
STATS_WINDOW = 10_000  # latest requests and batches that statistics cover


class ServerStats(NamedTuple):
    """Statistics of the latest requests, for benchmarks."""

    waits: list[float]  # seconds from a request to its reply
    batches: list[int]  # environments per batch
    received: int  # bytes of frames
    sent: int  # bytes of actions
    steps: int  # of environments


class Client:
    """A connection, and the actor at its other end once its handshake has arrived."""

    def __init__(self, connection: socket.socket, token: str) -> None:
        self.connection, self.reader = connection, FrameReader(token)
        self.connected_at = time.monotonic()
        self.actor_index = -1  # before the handshake
        self.builder: RolloutBuilder | None = None
        self.unfetched = 0  # rollouts
        self.requested_at = math.inf  # time of a request without reply


class InferenceServer:
    """Listens, acts and assembles rollouts in a thread of its own.

    Args:
      spec: the run; `spec.spec` are the learner's environments.
      token: secret that actors must send in their handshake.
      host: address to listen at.
    """

    def __init__(self, spec: ActorSpec, token: str, host: str) -> None:
        assert spec.spec is not None
        self._spec, self._token = spec, token
        self._policy = _BatchedPolicy(spec.spec, spec.config.runtime.num_envs, spec.entropy)
        self._parameters: tuple[Actor, int] | None = None  # with the learner step
        self._clients: dict[socket.socket, Client] = {}
        self._finished: list[Rollout] = []
        self._lock = threading.Condition()  # of parameters, clients and finished rollouts
        self._is_closed = False
        self._accepts_from = math.inf  # time at which a paused server accepts again
        self.failure: BaseException | None = None  # that ended the thread
        self._reply = FrameBuffer(action_dtype(spec.spec.action, spec.num_envs))
        self._waits: deque[float] = deque(maxlen=STATS_WINDOW)
        self._batches: deque[int] = deque(maxlen=STATS_WINDOW)
        self._received = self._sent = self._steps = 0
        self._listener = socket.create_server((host, 0), backlog=1024)
        self._listener.setblocking(False)
        self._waker, self._woken = socket.socketpair()  # a byte through it ends the selector's wait
        self._waker.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: self._woken.recv(4096))
        threading.Thread(target=self._run, daemon=True, name="serving").start()

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.getsockname()[:2]

    def set_parameters(self, actor: Actor | None, step: int) -> None:
        """Act with these parameters from the next batch on, at this learner step. None keeps the parameters."""
        with self._lock:
            if actor is not None:
                self._parameters = jax.device_put(actor), step
            elif self._parameters is not None:
                self._parameters = self._parameters[0], max(step, self._parameters[1])
        self._wake()

    def take_rollouts(self, seconds: float) -> list[Rollout]:
        """Return all finished rollouts, after at most that many seconds if there are none."""
        with self._lock:
            self._lock.wait_for(lambda: bool(self._finished) or self.failure is not None, seconds)
            if self.failure is not None:
                raise self.failure
            taken, self._finished = self._finished, []
            for client in self._clients.values():
                client.unfetched = 0
        self._wake()  # clients that waited for it may get actions again
        return taken

    def statistics(self) -> ServerStats:
        return ServerStats(list(self._waits), list(self._batches), self._received, self._sent, self._steps)

    def close(self) -> None:
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # closed, or full of bytes that wake it anyway
            self._waker.send(b"!")

    def _run(self) -> None:
        try:
            while not self._is_closed:
                for key, _ in self._selector.select(self._select_timeout()):
                    key.data()
                self._act()
                self._check_strangers()
        except BaseException as error:
            with self._lock:
                self.failure = error
                self._lock.notify_all()
        finally:
            for connection in [*self._clients, self._listener, self._woken]:
                connection.close()

    # Requests

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # the client is gone
            return
        except OSError:  # no descriptors or memory: the listener stays readable, so do not ask it for a while
            self._selector.unregister(self._listener)
            self._accepts_from = time.monotonic() + _PAUSE
            self._drop_strangers(keep=0)
            return
        try:
            connection.setblocking(False)
            configure_socket(connection)
            client = Client(connection, self._token)
            self._selector.register(connection, selectors.EVENT_READ, partial(self._read, client))
        except OSError:
            connection.close()
            return
        with self._lock:
            self._clients[connection] = client
        self._drop_strangers(keep=self._spec.config.runtime.num_actors + MAX_STRANGERS)

    def _drop_strangers(self, *, keep: int) -> None:
        """Disconnect all but the newest connections without a handshake."""
        strangers = [client for client in self._clients.values() if client.actor_index < 0]
        for client in strangers[: max(0, len(strangers) - keep)]:
            self._disconnect(client)

    def _check_strangers(self) -> None:
        """Disconnect clients whose handshake takes too long; accept again after a pause."""
        now = time.monotonic()
        for client in list(self._clients.values()):
            if client.actor_index < 0 and now - client.connected_at > HANDSHAKE_SECONDS:
                self._disconnect(client)
        if now >= self._accepts_from:
            self._accepts_from = math.inf
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _read(self, client: Client) -> None:
        if client.connection not in self._clients:  # disconnected in this round of the selector
            return
        try:
            message = client.reader.read(client.connection)
            if isinstance(message, Handshake):
                self._register(client, message)
            elif message is not None:
                self._add_frame(client, message)
        except BlockingIOError:
            pass
        except Exception:  # no message may end the server
            self._disconnect(client)

    def _register(self, client: Client, handshake: Handshake) -> None:
        """Accept an actor. It replaces one with the same index, whose process may hang."""
        runtime, size = self._spec.config.runtime, self._spec.num_envs
        assert self._spec.spec is not None
        if client.actor_index >= 0 or not 0 <= handshake.actor < runtime.num_actors:
            raise ValueError("a handshake of another run")
        check_layout(handshake.dtype, self._spec.spec.observation, size)
        client.reader.accept(handshake.dtype)
        for other in [each for each in self._clients.values() if each.actor_index == handshake.actor]:
            self._disconnect(other)
        client.actor_index = handshake.actor
        env_ids = np.arange(handshake.actor * size, (handshake.actor + 1) * size)
        client.builder = RolloutBuilder(env_ids, runtime.sequence_length, handshake.dtype)

    def _add_frame(self, client: Client, frame: np.ndarray) -> None:
        if client.builder is None or client.requested_at < math.inf:
            raise ValueError("a frame that was not asked for")
        rollout = client.builder.add_frame({name: frame[name] for name in frame.dtype.names or ()})
        client.requested_at = time.perf_counter()
        self._steps += self._spec.num_envs
        self._received += frame.nbytes
        if rollout is not None:
            with self._lock:
                self._finished.append(rollout)
                client.unfetched += 1
                self._lock.notify_all()

    def _disconnect(self, client: Client) -> None:
        with self._lock:
            # An actor may be replaced and lose its connection within one round of the selector: act only once.
            if self._clients.pop(client.connection, None) is None:
                return
        self._selector.unregister(client.connection)
        client.connection.close()

    # Replies

    def _select_timeout(self) -> float:
        """Return the seconds until the first request has waited for MAX_WAIT."""
        if self._parameters is None or not (clients := self._waiting_clients()):
            return 0.5 if self._accepts_from == math.inf else _PAUSE
        return max(0.0, min(client.requested_at for client in clients) + MAX_WAIT - time.perf_counter())

    def _waiting_clients(self) -> list[Client]:
        """Return the clients that may get actions."""
        limit = self._spec.config.runtime.queue_size
        return [each for each in self._clients.values() if each.requested_at < math.inf and each.unfetched <= limit]

    def _act(self) -> None:
        """Reply to all pending requests, if the batch is complete or its first request has waited long enough."""
        clients = self._waiting_clients()
        if not clients or self._parameters is None:
            return
        is_complete = all(each.requested_at < math.inf for each in self._clients.values() if each.actor_index >= 0)
        if not is_complete and time.perf_counter() < min(client.requested_at for client in clients) + MAX_WAIT:
            return
        with self._lock:
            actor, step = self._parameters
        began, size = time.perf_counter(), self._spec.num_envs
        batch = self._policy(actor, clients)
        seconds = (time.perf_counter() - began) / len(clients)
        for index, client in enumerate(clients):
            assert client.builder is not None
            part = slice(index * size, (index + 1) * size)
            client.builder.add_actions(batch, part, step, seconds)
            if self._send(client, Action(batch.action.discrete[part], batch.action.continuous[part])):
                self._waits.append(time.perf_counter() - client.requested_at)
            client.requested_at = math.inf
        self._batches.append(len(clients) * size)

    def _send(self, client: Client, action: Action) -> bool:
        # A reply is small and the client has read the one before it, so it fits into the socket's buffer: `sendall`
        # does not block.
        reply = self._reply.fill(action._asdict())
        try:
            client.connection.sendall(reply)
        except OSError:
            self._disconnect(client)
            return False
        self._sent += len(reply)
        return True


class _BatchedPolicy:
    """Acts for several clients at once, and holds the recurrent states of all environments.

    Behind them are states of dummy environments, which fill up a batch.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, entropy: list[int]) -> None:
        self._spec, self._num_envs = spec, num_envs
        self._key: Array = jax.random.key(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
        self._recurrent_state: RecurrentState | None = None  # [num_envs + size, ...] where size is that of one client

    def __call__(self, actor: Actor, clients: list[Client]) -> ActionBatch:
        """Choose actions for the last frames of the clients, one client after the other."""
        builders = [client.builder for client in clients if client.builder is not None]
        frames = [builder.frame for builder in builders]
        size, extra = len(frames[0]["reward"]), _next_power_of_two(len(frames)) - len(frames)
        if self._recurrent_state is None:
            self._recurrent_state = actor.initial_state(self._spec, self._num_envs + size)
        slots = [np.arange(client.actor_index * size, (client.actor_index + 1) * size) for client in clients]
        slots += [np.arange(self._num_envs, self._num_envs + size)] * extra
        frames += frames[-1:] * extra
        names = [name for name in frames[0] if name.startswith(OBSERVATION) or name in ("reward", "is_first")]
        arrays = {name: np.concatenate([frame[name] for frame in frames]) for name in names}
        unused = np.zeros(0)  # acting reads neither discounts nor episode ends
        timestep = TimeStep(unflatten_observation(arrays), arrays["reward"], unused, arrays["is_first"], unused, unused)
        self._recurrent_state, before, policy, action, self._key = _act_in_slots(
            actor, self._recurrent_state, np.concatenate(slots), timestep, self._key
        )
        needs_initial_state = any(builder.needs_initial_state for builder in builders)
        return ActionBatch(*jax.device_get((action, policy, before if needs_initial_state else None)))


def _next_power_of_two(number: int) -> int:
    """Round up to a power of two to bound the number of compiled shapes."""
    return 1 << (number - 1).bit_length()


@partial(jax.jit, donate_argnums=1)
def _act_in_slots(
    actor: Actor, recurrent_state: RecurrentState, slots: Any, timestep: TimeStep, key: Array
) -> tuple[RecurrentState, RecurrentState, Policy, Action, Array]:
    """Act for the environments [n] in these slots. Returns all states, those in the slots before, and the rest."""
    key, act_key = jax.random.split(key)
    before = jax.tree.map(lambda x: x[slots], recurrent_state)
    after, policy, action = select_action(actor, before, timestep, act_key)
    recurrent_state = jax.tree.map(lambda old, new: old.at[slots].set(new), recurrent_state, after)
    return recurrent_state, before, policy, action, key
