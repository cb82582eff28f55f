"""The original's observations and actions by its own names, and what they are here.

What a server says of its bounds is not reliable, so they are kept here: [-1, 1] of the agent spans them. Actions are
sticky, an action that is left out keeps its value: all nine are sent with every step.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from dm_env_rpc.v1 import tensor_utils
from dm_env_rpc.v1.spec_manager import SpecManager

from byol_explore.envs.adapters.dm_hard_eight_connection import MESSAGES, Strange
from byol_explore.envs.adapters.dm_hard_eight_settings import LEVELS
from byol_explore.envs.worlds.hard_eight.tasks import LONGEST, WORDS, instructions
from byol_explore.errors import one_line
from byol_explore.spaces import ActionSpec, Image, Kind, Tokens, Vector

BOUNDS = {  # of the eight continuous actions, on both sides of zero
    "MOVE_BACK_FORWARD": 1.0,
    "STRAFE_LEFT_RIGHT": 1.0,
    "LOOK_DOWN_UP": 1.0,
    "LOOK_LEFT_RIGHT": 1.0,
    "HAND_ROTATE_AROUND_FORWARD": 1.0,
    "HAND_ROTATE_AROUND_RIGHT": 1.0,
    "HAND_ROTATE_AROUND_UP": 1.0,
    "HAND_PUSH_PULL": 10.0,
}
GRIP = "HAND_GRIP"
ACTION = ActionSpec(discrete=(2,), continuous=len(BOUNDS))
NAMES = {  # of what is seen
    "rgb": "RGB_INTERLEAVED",
    "hand_force": "HAND_FORCE",
    "hand_is_holding": "HAND_IS_HOLDING",
    "hand_distance": "HAND_DISTANCE",
}
REWARD = "reward"


def observation_kinds(height: int, width: int) -> dict[str, Image | Vector | Tokens]:
    return {
        "rgb": Image(height, width, 3),
        "hand_force": Vector(1),
        "hand_is_holding": Vector(1),
        "hand_distance": Vector(1),
        "instruction": Tokens(LONGEST, len(WORDS) + 1),
    }


def instruction(task: str) -> np.ndarray:
    """[LONGEST] int32. The original offers no text, so that it is a constant of the task."""
    return instructions()[list(LEVELS).index(task)]


def to_actions(continuous: np.ndarray, grip: int) -> dict[str, float]:
    """All nine from an agent's eight numbers, which are clipped to [-1, 1] and 0 where they are none, and its grip."""
    unit = np.clip(np.nan_to_num(np.asarray(continuous, np.float64)), -1.0, 1.0)
    numbers = {name: float(value * bound) for value, (name, bound) in zip(unit, BOUNDS.items(), strict=True)}
    return {**numbers, GRIP: float(grip)}


STILL = to_actions(np.zeros(len(BOUNDS)), 0)


def create_request(task: str, seed: int) -> Any:
    settings = {"seed": np.int64(seed), "episodeId": np.int64(0), "levelName": LEVELS[task].name}
    return MESSAGES.CreateWorldRequest(settings=_packed(settings))


def join_request(world: str, height: int, width: int) -> Any:
    settings = {"width": np.int64(width), "height": np.int64(height)}
    return MESSAGES.JoinWorldRequest(world_name=world, settings=_packed(settings))


def _packed(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor_utils.pack_tensor(value) for name, value in settings.items()}


class Specs:
    """What a server offers in a world, which must be what the original does."""

    def __init__(self, specs: Any, kinds: dict[str, Any]) -> None:
        try:
            self._actions, self._observations = SpecManager(specs.actions), SpecManager(specs.observations)
        except ValueError as error:
            raise Strange(f"its specs are wrong: {one_line(error)}") from None
        self._kinds = {NAMES[name]: kind for name, kind in kinds.items() if name in NAMES} | {REWARD: Vector(1)}
        _check("action", self._actions, dict.fromkeys((*BOUNDS, GRIP), Vector(1)))
        _check("observation", self._observations, self._kinds)
        self._wanted = sorted(map(self._observations.name_to_uid, self._kinds))

    def step_request(self, actions: dict[str, float]) -> Any:
        shaped = {name: np.full(list(self._actions.name_to_spec(name).shape), value) for name, value in actions.items()}
        packed = self._actions.pack(shaped)
        return MESSAGES.StepRequest(requested_observations=self._wanted, actions=packed)

    def read(self, response: Any) -> tuple[dict[str, np.ndarray], float]:
        """Observations of a step by our names, and its reward."""
        try:
            seen = self._observations.unpack(response.observations)
        except (ValueError, TypeError, KeyError) as error:
            raise Strange(f"its answer to step is wrong: {one_line(error)}") from None
        for name in self._kinds:
            if name not in seen:
                raise Strange(f"its answer to step has no {name}")
        shaped = {
            ours: np.asarray(seen[name]).reshape(self._kinds[name].shape).astype(self._kinds[name].dtype, copy=False)
            for ours, name in NAMES.items()
        }
        return shaped, float(np.asarray(seen[REWARD]).item())


def _check(side: str, offered: SpecManager, kinds: Mapping[str, Kind]) -> None:
    """Raises Strange for the first that a server does not offer, or offers in another shape or type."""
    for name, kind in kinds.items():
        if name not in offered.names():
            listed = ", ".join(sorted(offered.names())) or "none"
            raise Strange(f"it offers no {side} {name}, only {listed}")
        spec = offered.name_to_spec(name)
        shape, expected = tuple(spec.shape), tuple(kind.shape)
        is_one = isinstance(kind, Vector) and shape in ((), (1,))
        if shape != expected and not is_one:
            raise Strange(f"it offers the {side} {name} in the shape {shape}: it must be {expected}")
        dtype = MESSAGES.DataType.Name(spec.dtype)
        fits = dtype == "UINT8" if isinstance(kind, Image) else dtype not in ("STRING", "PROTO", "INVALID_DATA_TYPE")
        if not fits:
            wanted = "UINT8" if isinstance(kind, Image) else "a number"
            raise Strange(f"it offers the {side} {name} as {dtype}: it must be {wanted}")
