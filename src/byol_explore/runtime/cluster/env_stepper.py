"""An actor that only steps environments: actions come from the inference server. No JAX."""

import socket
import time
from typing import Any

import numpy as np

from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.envs.interface import HostVectorEnv
from byol_explore.envs.watchdog import StopStepping, Watchdog
from byol_explore.runtime.cluster.messages import (
    ActorSpec,
    FrameBuffer,
    Handshake,
    action_dtype,
    configure_socket,
    frame_dtype,
    make_actor_envs,
    receive_exactly,
)
from byol_explore.types import Action, TimeStep

OBSERVATION = "observation/"  # before the names of a dict's entries; alone for a single array


class EnvStepper:
    """Environments of an actor, stepped in a thread under a `Watchdog`."""

    def __init__(self, spec: ActorSpec) -> None:
        runtime = spec.config.runtime
        self._spec, self._watchdog = spec, Watchdog(runtime.step_timeout, max_restarts=runtime.max_env_restarts)
        self._connection: socket.socket | None = None
        self._is_closed = False
        self._watchdog.run(self._make_envs)

    def run(self, address: tuple[str, int], token: str) -> None:
        """Begin new episodes and step as the server at `address` requests, until it has closed the connection."""
        try:
            self._watchdog.run(lambda: self._play(address, token))
        except StopStepping:
            if not self._is_closed:
                raise

    def close(self) -> None:
        self._is_closed = True
        self._watchdog.stop()
        if self._connection is not None:
            self._connection.close()

    def _make_envs(self) -> None:
        envs, spec = make_actor_envs(self._spec), self._spec
        seed = int(np.random.SeedSequence(spec.entropy).generate_state(2)[1])
        self._env_spec = envs[0].spec
        self._vector_env = make_host_vector_env(
            self._watchdog.wrap(envs), spec.num_envs, seed, spec.config.task_sampling
        )

    def _play(self, address: tuple[str, int], token: str) -> None:
        vector_env = self._vector_env
        frame = make_frame(vector_env, vector_env.reset(), 0.0)  # before the server's limit of time for a handshake
        dtype = first_frame_dtype(frame, self._env_spec.observation)
        try:
            with socket.create_connection(address, self._watchdog.limit) as connection:
                self._connection = connection
                configure_socket(connection)
                connection.settimeout(None)
                connection.sendall(Handshake(self._spec.actor_index, dtype).encode(token))
                request, reply = (
                    FrameBuffer(dtype),
                    FrameBuffer(action_dtype(self._env_spec.action, vector_env.num_envs)),
                )
                while not self._is_closed:
                    connection.sendall(request.fill(frame))
                    receive_exactly(connection, reply.buffer)
                    # Copies, because an environment may keep its actions, and the next reply overwrites the buffer.
                    action = Action(reply.arrays["discrete"].copy(), reply.arrays["continuous"].copy())
                    began = time.perf_counter()
                    timestep = vector_env.step(action)
                    frame = make_frame(vector_env, timestep, time.perf_counter() - began)
        except OSError:  # the server is gone; the caller knows where the next one listens
            return


def first_frame_dtype(frame: dict[str, np.ndarray], spaces: Any) -> np.dtype:
    """Return the dtype of all frames from the first one and the observation space."""
    # Observations have the dtype of their space: a first one of integers must not truncate the fractions of later ones.
    named = {OBSERVATION + name: spaces[name] for name in spaces} if isinstance(spaces, dict) else {OBSERVATION: spaces}
    return frame_dtype({name: x.astype(named[name].dtype) if name in named else x for name, x in frame.items()})


_MAX_COLUMNS = 1_000  # positions and stages of an environment


def check_layout(dtype: np.dtype, spaces: Any, num_envs: int) -> None:
    """Raise a ValueError unless frames of a layout are those of `make_frame` for these observation spaces."""
    named = {OBSERVATION + name: spaces[name] for name in spaces} if isinstance(spaces, dict) else {OBSERVATION: spaces}
    expected = {name: (space.dtype, (num_envs, *space.shape)) for name, space in named.items()}
    scalars = {
        "reward": np.float32, "discount": np.float32, "is_first": bool, "is_last": bool, "success": np.int8,
        "task_id": np.int32,
    }  # fmt: skip
    expected |= {name: (np.dtype(kind), (num_envs,)) for name, kind in scalars.items()}
    expected["env_seconds"] = np.dtype(np.float32), (1,)
    found = {name: (field[0].base, field[0].shape) for name, field in (dtype.fields or {}).items()}
    tables = {name: found.pop(name) for name in ("positions", "stages_reached") if name in found}
    fits = all(len(shape) == 2 and shape[0] == num_envs and shape[1] <= _MAX_COLUMNS for _, shape in tables.values())
    if found != expected or "positions" not in tables or not fits:
        raise ValueError("frames of another layout")


def make_frame(vector_env: HostVectorEnv, timestep: TimeStep, env_seconds: float) -> dict[str, np.ndarray]:
    """Return all data of a time step as arrays [E, ...] by name, for acting and for statistics."""
    observation = timestep.observation
    if isinstance(observation, dict):
        frame = {OBSERVATION + name: np.asarray(array) for name, array in observation.items()}
    else:
        frame = {OBSERVATION: np.asarray(observation)}
    frame |= {
        "reward": np.asarray(timestep.reward, np.float32),
        "discount": np.asarray(timestep.discount, np.float32),
        "is_first": np.asarray(timestep.is_first, bool),
        "is_last": np.asarray(timestep.is_last, bool),
        "success": np.asarray(timestep.success, np.int8),
        "task_id": np.asarray(vector_env.task_ids(), np.int32),
        "positions": np.asarray(vector_env.positions()),
        "env_seconds": np.asarray([env_seconds], np.float32),
    }
    stages = vector_env.stages_reached()
    return frame if stages is None else frame | {"stages_reached": np.asarray(stages, bool)}
