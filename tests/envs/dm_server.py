"""A dm_env_rpc server that behaves like DM-HARD-8, over real gRPC, with configurable faults.

Run as a program (`python dm_server.py --uri_address=127.0.0.1:PORT`) it replaces the original's executable.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2, dm_env_rpc_pb2_grpc, tensor_utils
from google.rpc import status_pb2

pb: Any = dm_env_rpc_pb2
ACTIONS = ("MOVE_BACK_FORWARD", "STRAFE_LEFT_RIGHT", "LOOK_DOWN_UP", "LOOK_LEFT_RIGHT", "HAND_ROTATE_AROUND_FORWARD",
           "HAND_ROTATE_AROUND_RIGHT", "HAND_ROTATE_AROUND_UP", "HAND_PUSH_PULL", "HAND_GRIP")  # fmt: skip
LENGTH = 6  # steps of an episode after its first observation
APPLE = 10.0  # the reward of the last step of an episode that terminates; each step before pays 1


@dataclass
class Behavior:
    """Behaviour of a server; the defaults have no fault."""

    length: int = LENGTH
    ends: tuple[str, ...] = ("TERMINATED",)  # of the episodes of a world, repeated
    rooms: int = 1000  # largest number of worlds
    silent_until: float = 0.0  # seconds after its start in which it does not answer
    unready: int = 0  # number of first streams that are cut off at once
    answers_early: bool = False  # answers a step before a world is joined
    fault_at: int | None = None  # step, counted over all worlds, with the fault
    fault: str = "cut"  # see `_with_faults`
    times: int = 1  # number of steps with the fault
    without: tuple[str, ...] = ()  # missing observations and actions
    changed: dict[str, tuple[int, ...]] = field(default_factory=dict)  # other shapes of observations and actions
    as_text: tuple[str, ...] = ()  # observations offered as texts


@dataclass
class World:
    """State of one world."""

    settings: dict[str, Any]
    number: int
    time: int = -1  # -1 before the first observation of an episode
    episode: int = 0
    state: Any = pb.TERMINATED
    size: tuple[int, int] = (72, 96)
    actions: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ACTIONS, 0.0))


class Refusal(Exception):
    """Answered as an error of dm_env_rpc."""


class DMServer(dm_env_rpc_pb2_grpc.EnvironmentServicer):
    """The servicer; records all requests."""

    def __init__(self, behavior: Behavior | None = None) -> None:
        self.behavior = behavior or Behavior()
        self.began = time.monotonic()
        self.worlds: dict[str, World] = {}
        self.created: list[World] = []
        self.joined: list[dict[str, Any]] = []
        self.sent: list[dict[str, float]] = []  # the actions of each step
        self.requested: list[set[str]] = []  # the observations of each step
        self.resets = self.steps = self.streams = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()

    def Process(self, request_iterator: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """Serve one stream."""
        self.streams += 1
        if self.streams <= self.behavior.unready:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        mine: dict[str, World] = {}
        try:
            for request in request_iterator:
                self._wait(context, self.behavior.silent_until - (time.monotonic() - self.began))
                kind = request.WhichOneof("payload")
                answer = pb.EnvironmentResponse()
                try:
                    with self._lock:
                        getattr(answer, kind).CopyFrom(getattr(self, f"_{kind}")(getattr(request, kind), mine))
                except Refusal as error:
                    answer.error.CopyFrom(status_pb2.Status(code=3, message=str(error)))
                yield self._with_faults(kind, answer, context, bool(mine))
        finally:
            for world in mine.values():
                self.worlds = {name: each for name, each in self.worlds.items() if each is not world}

    # Requests

    def _create_world(self, request: Any, mine: dict[str, World]) -> Any:
        if len(self.worlds) >= self.behavior.rooms:
            raise Refusal("there is a world already")
        settings = {name: tensor_utils.unpack_tensor(tensor) for name, tensor in request.settings.items()}
        world = World(settings, len(self.created))
        self.created.append(world)
        name = f"world {world.number}"
        self.worlds[name] = world
        return pb.CreateWorldResponse(world_name=name)

    def _join_world(self, request: Any, mine: dict[str, World]) -> Any:
        settings = {name: int(tensor_utils.unpack_tensor(tensor)) for name, tensor in request.settings.items()}
        self.joined.append(settings)
        mine["joined"] = world = self.worlds[request.world_name]
        world.size = settings["height"], settings["width"]
        return pb.JoinWorldResponse(specs=self._specs(world))

    def _reset(self, request: Any, mine: dict[str, World]) -> Any:
        self.resets += 1
        world = self._joined(mine)
        world.state = pb.INTERRUPTED
        return pb.ResetResponse(specs=self._specs(world))

    def _leave_world(self, request: Any, mine: dict[str, World]) -> Any:
        mine.pop("joined")
        return pb.LeaveWorldResponse()

    def _destroy_world(self, request: Any, mine: dict[str, World]) -> Any:
        del self.worlds[request.world_name]
        return pb.DestroyWorldResponse()

    def _step(self, request: Any, mine: dict[str, World]) -> Any:
        if self.behavior.answers_early:
            return pb.StepResponse(state=pb.RUNNING)
        world = self._joined(mine)
        actions, observations = self._names()
        sent = {actions[uid]: float(tensor_utils.unpack_tensor(value)) for uid, value in request.actions.items()}
        self.sent.append(sent)
        self.requested.append({observations[uid] for uid in request.requested_observations})
        self.steps += 1
        world.actions |= sent
        reward = self._advance(world)
        seen = self._observe(world, reward)
        wanted = {uid: seen[observations[uid]] for uid in request.requested_observations}
        packed = {uid: tensor_utils.pack_tensor(value) for uid, value in wanted.items()}
        return pb.StepResponse(state=world.state, observations=packed)

    # The world

    def _joined(self, mine: dict[str, World]) -> World:
        if "joined" not in mine:
            raise Refusal("no world has been joined")
        return mine["joined"]

    def _advance(self, world: World) -> float:
        """Step a world and return the reward; the first step of an episode ignores its actions."""
        if world.state != pb.RUNNING:
            world.episode += world.time >= 0
            world.time, world.state = 0, pb.RUNNING
            return 0.0
        world.time += 1
        if world.time < self.behavior.length:
            return 1.0
        ends = self.behavior.ends[world.episode % len(self.behavior.ends)]
        world.state = getattr(pb, ends)
        return APPLE if ends == "TERMINATED" else 1.0

    def _observe(self, world: World, reward: float) -> dict[str, Any]:
        """The first pixel has the time, the world and the episode; the hand's observations have the current actions."""
        picture = np.full((*world.size, 3), 7, np.uint8)
        picture[0, 0] = max(0, world.time), world.number, world.episode % 256
        return {
            "RGB_INTERLEAVED": picture,
            "ACCELERATION": np.zeros(3, np.float32),
            "HAND_FORCE": np.float32(abs(world.actions["MOVE_BACK_FORWARD"])),
            "HAND_IS_HOLDING": np.float32(world.actions["HAND_GRIP"]),
            "HAND_DISTANCE": np.float32(world.time / 8),
            "Score": np.float64(world.time),
            "reward": np.float64(reward),
        }

    def _names(self) -> tuple[dict[int, str], dict[int, str]]:
        observations = list(self._observe(World({}, 0), 0.0))
        return dict(enumerate(ACTIONS, 1)), dict(enumerate(observations, 101))

    def _specs(self, world: World) -> Any:
        """Return specs without bounds: those of the original are not reliable."""
        seen = self._observe(world, 0.0) | dict.fromkeys(ACTIONS, np.float64(0.0))
        specs = pb.ActionObservationSpecs()
        for names, side in zip(self._names(), (specs.actions, specs.observations), strict=True):
            for uid, name in names.items():
                if name in self.behavior.without:
                    continue
                spec, value = side[uid], np.asarray(seen[name])
                spec.name, spec.shape[:] = name, self.behavior.changed.get(name, value.shape)
                is_text = name in self.behavior.as_text
                spec.dtype = pb.STRING if is_text else tensor_utils.np_type_to_data_type(value.dtype)
        return specs

    # Faults

    def _with_faults(self, kind: str, answer: Any, context: grpc.ServicerContext, is_joined: bool) -> Any:
        behavior, first = self.behavior, self.behavior.fault_at
        if kind != "step" or not is_joined or first is None or not first <= self.steps < first + behavior.times:
            return answer
        match behavior.fault:
            case "cut":
                context.abort(grpc.StatusCode.UNAVAILABLE, "injected fault")
            case "silence":
                self._wait(context, 3600.0)
            case "error":
                return pb.EnvironmentResponse(error=status_pb2.Status(code=13, message="the level\nis broken"))
            case "shape":
                answer.step.observations[101].shape[:] = [1, 2, 3]
            case "missing":
                del answer.step.observations[103]
            case "state":
                answer.step.state = 0
            case "end":
                answer.step.state = pb.TERMINATED
            case "other":
                return pb.EnvironmentResponse(leave_world=pb.LeaveWorldResponse())
            case "exit":
                os.kill(os.getpid(), signal.SIGKILL)
        return answer

    def _wait(self, context: grpc.ServicerContext, seconds: float) -> None:
        """Wait until the server stops or the client has gone."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and context.is_active() and not self.stopping.is_set():
            time.sleep(0.01)


class Running:
    """A server that listens on the loopback interface."""

    def __init__(self, servicer: DMServer, address: str = "127.0.0.1:0") -> None:
        self.servicer = servicer
        self._grpc = grpc.server(ThreadPoolExecutor(64), options=(("grpc.so_reuseport", 0),))
        dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(servicer, self._grpc)
        self.port = self._grpc.add_secure_port(address, grpc.local_server_credentials())
        self.address = f"127.0.0.1:{self.port}"
        self._grpc.start()

    def stop(self) -> None:
        """Stop at once: every stream breaks."""
        self.servicer.stopping.set()
        self._grpc.stop(None).wait()

    def wait(self) -> None:
        self._grpc.wait_for_termination()


@contextlib.contextmanager
def running(address: str = "127.0.0.1:0", **behavior: Any) -> Iterator[Running]:
    """Run a server with this behaviour."""
    server = Running(DMServer(Behavior(**behavior)), address)
    try:
        yield server
    finally:
        server.stop()


def main(arguments: list[str]) -> None:
    """Serve with the behaviour that the environment variable DM_SERVER has as JSON."""
    [address] = [each.split("=", 1)[1] for each in arguments if each.startswith("--uri_address=")]
    Running(DMServer(Behavior(**json.loads(os.environ.get("DM_SERVER", "{}")))), address).wait()


if __name__ == "__main__":
    main(sys.argv[1:])
