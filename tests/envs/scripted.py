"""Scripted Gymnasium environments, registered for tests under the namespace `scripted`.

For tests of the adapter to Gymnasium; `hosts.py` and `host_worlds.py` have environments of our own protocol.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode

from byol_explore.envs.gymnasium_env import GymnasiumEnv, GymnasiumVectorEnv
from byol_explore.types import Action

LENGTHS = (2, 3, 1)  # of episodes, repeated; the second kind is truncated, the others terminate


class Scripted(gymnasium.Env):
    """Observes its number, the episode, the step and the last action; rewards are 10 * episode + step.

    Environments of one batch have seeds next to each other: by its seed each begins with another kind of episode.
    """

    observation_space = spaces.Box(-1.0, 100.0, (4,))
    action_space = spaces.Discrete(50)
    number, episode, step_count, ended = 0, 0, 0, True

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            self.number, self.episode = seed % 3, 0
        self.episode, self.step_count, self.ended = self.episode + 1, 0, False
        return self._observation(-1), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert not self.ended, "stepped after the end"
        self.step_count += 1
        kind = (self.number + self.episode - 1) % 3
        self.ended = self.step_count == LENGTHS[kind]
        cut = kind == 1
        reward = 10.0 * self.episode + self.step_count
        return self._observation(action), reward, self.ended and not cut, self.ended and cut, {}

    def _observation(self, action: int) -> np.ndarray:
        return np.asarray([self.number, self.episode, self.step_count, action], np.float32)


class Endless(Scripted):
    """Has episodes without an end."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.step_count += 1
        return self._observation(action), 1.0, False, False, {}


class WithInfos(Scripted):
    """Returns infos of its episode at every step."""

    infos_of: Callable[[int], dict[str, Any]] = staticmethod(lambda episode: {})

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, self.infos_of(self.episode)


class Counted(Endless):
    """Counts the made and the open environments, and the rendered pictures."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 30}  # noqa: RUF012
    made, opened, rendered = 0, 0, 0

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        Counted.made, Counted.opened = Counted.made + 1, Counted.opened + 1

    def render(self) -> np.ndarray:
        Counted.rendered += 1
        return np.full((4, 5, 3), 50 * self.number + self.step_count, np.uint8)

    def close(self) -> None:
        Counted.opened -= 1


class Undrawable(Endless):
    """Has a render mode in its metadata, but cannot be made with it."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012


class Broken(Endless):
    def __init__(self) -> None:
        raise OSError("no such\nrobot")


class Speaking(Endless):
    observation_space = spaces.Dict({"words": spaces.Sequence(spaces.Text(8)), "x": spaces.Discrete(2)})


class Boundless(Endless):
    action_space = spaces.Box(-np.inf, np.inf, (2,))


class Robot(gymnasium.Env):
    """Has nested spaces; the reward depends on all parts of the action."""

    observation_space = spaces.Dict(
        {"eye": spaces.Box(0, 255, (3, 12, 10), np.uint8), "arm": spaces.Tuple([spaces.Box(-1, 1, (2,))])}
    )
    action_space = spaces.Dict({"go": spaces.Discrete(3, start=1), "arm": spaces.Tuple([spaces.Box(0, 4, (2,))])})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[dict, float, bool, bool, dict]:
        assert self.action_space.contains(action)
        return self.observation_space.sample(), float(100 * action["go"] + action["arm"][0].sum()), False, False, {}


class SameStep(CartPoleVectorEnv):
    """Resets in the same step, by its metadata."""

    metadata = {**CartPoleVectorEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    closed_count = 0

    def close(self, **_: Any) -> None:
        SameStep.closed_count += 1


@contextlib.contextmanager
def register_scripted() -> Iterator[None]:
    """Register the environments, with all counts at zero."""
    Counted.made = Counted.opened = Counted.rendered = SameStep.closed_count = 0
    settings: dict[str, dict[str, Any]] = {
        "Scripted": {"entry_point": Scripted},
        "Limited": {"entry_point": Endless, "max_episode_steps": 2, "reward_threshold": 1.5},
        "WithInfos": {"entry_point": WithInfos},
        "Counted": {"entry_point": Counted},
        "Undrawable": {"entry_point": Undrawable},
        "Broken": {"entry_point": Broken},
        "Speaking": {"entry_point": Speaking},
        "Boundless": {"entry_point": Boundless},
        "Robot": {"entry_point": Robot},
        "SameStep": {
            "entry_point": "gymnasium.envs.classic_control.cartpole:CartPoleEnv",
            "vector_entry_point": SameStep,
            "max_episode_steps": 9,
        },
        "OnlyVector": {"vector_entry_point": CartPoleVectorEnv, "max_episode_steps": 9},
    }
    ids = [f"scripted/{name}-v0" for name in settings]
    for env_id, setting in zip(ids, settings.values(), strict=True):
        gymnasium.register(env_id, **setting)
    try:
        yield
    finally:
        for env_id in ids:
            del gymnasium.registry[env_id]


def open_batch(env: GymnasiumEnv, num_envs: int, seed: int = 0) -> contextlib.closing[GymnasiumVectorEnv]:
    return contextlib.closing(env.make_vector_env(num_envs, seed))


def number(values: list[int] | np.ndarray) -> Action:
    """Make a discrete action [E, 1]."""
    return Action(np.asarray(values, np.int32)[:, None], np.zeros((len(values), 0), np.float32))
