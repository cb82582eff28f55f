"""The adapter to EnvPool on a stand-in for the package; `tests/envpools` has the real one."""

import importlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from byol_explore.envs.gymnasium_spaces import tokenize
from byol_explore.envs.registry import list_environments, make_env
from byol_explore.errors import UserError
from byol_explore.types import Action

LENGTHS = np.asarray([2, 3])  # of the episodes of the two environments; the second kind is truncated
MISSIONS = ("get the red key", "open the door")


class MiniGridEnvSpec:
    """A spec as EnvPool's MiniGrid has it."""

    reward_threshold = None
    observation_space = spaces.Dict(
        direction=spaces.Discrete(4), image=spaces.Box(0, 255, (7, 7, 3), np.uint8),
        mission=spaces.Box(0, 255, (24,), np.uint8),
    )  # fmt: skip
    action_space = spaces.Discrete(7)

    def __init__(self, max_episode_steps: int = 50, max_num_players: int = 1, num_threads: int = 0) -> None:
        self.config = SimpleNamespace(max_episode_steps=max_episode_steps, max_num_players=max_num_players)
        self.num_threads = num_threads


class VizdoomEnvSpec(MiniGridEnvSpec):
    pass


class Pool:
    """Two environments in NEXT_STEP mode; images hold the episode and the step, rewards are 10 * episode + step."""

    def __init__(self, seed: int) -> None:
        self.seed, self.episode, self.steps = seed, np.zeros(2, int), np.zeros(2, int)
        self.actions: list[np.ndarray] = []
        self.closed = False

    def reset(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self.episode, self.steps = self.episode + 1, np.zeros(2, int)
        return self.observation(), {}

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        self.actions.append(action)
        begins = self.steps == LENGTHS
        self.episode, self.steps = self.episode + begins, np.where(begins, 0, self.steps + 1)
        ended = self.steps == LENGTHS
        reward = np.where(begins, 0.0, 10.0 * self.episode + self.steps).astype(np.float32)
        return self.observation(), reward, ended & [True, False], ended & [False, True], {"elapsed_step": self.steps}

    def observation(self) -> dict[str, np.ndarray]:
        image = np.zeros((2, 7, 7, 3), np.uint8)
        image[:, 0, 0, 0], image[:, 0, 0, 1] = self.episode, self.steps
        mission = np.zeros((2, 24), np.uint8)
        for row, text in zip(mission, MISSIONS, strict=True):
            row[: len(text)] = np.frombuffer(text.encode(), np.uint8)
        return {"direction": self.steps.astype(np.int32), "image": image, "mission": mission}

    def render(self, env_ids: int) -> np.ndarray:
        return np.full((1, 4, 5, 3), 7, np.uint8)

    def close(self) -> None:
        self.closed = True


SPECS = {
    "MiniGrid-Test-v0": MiniGridEnvSpec, "MiniGrid-MultiRoom-N6-v0": MiniGridEnvSpec, "Doom-v1": VizdoomEnvSpec,
    "Crowd-v0": lambda **options: MiniGridEnvSpec(max_num_players=2, **options),
}  # fmt: skip


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Replace the package; return the arguments of the pools that were made."""
    made: list[dict[str, Any]] = []

    def make(env_id: str, **options: Any) -> Pool:
        made.append({"env_id": env_id, **options})
        return Pool(options["seed"])

    package: Any = SimpleNamespace(
        list_all_envs=lambda: list(SPECS), make_spec=lambda env_id, **options: SPECS[env_id](**options), make=make
    )
    monkeypatch.setitem(sys.modules, "envpool", package)
    monkeypatch.delitem(sys.modules, "byol_explore.envs.envpool_env", raising=False)
    importlib.import_module("byol_explore.envs.envpool_env")
    return made


def act(pool: Any, choice: int) -> Any:
    return pool.step(Action(np.full((2, 1), choice, np.int32), np.zeros((2, 0), np.float32)))


def test_last_observations_are_shown_before_the_first_ones_of_new_episodes() -> None:
    pool: Any = make_env("envpool:MiniGrid-Test-v0").make_vector_env(2, 0)
    steps = [pool.reset(), *(act(pool, choice) for choice in range(5))]
    shown = [[(int(x[0, 0, 0]), int(x[0, 0, 1])) for x in step.observation["image"]] for step in steps]
    assert [pair[0] for pair in shown] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert [pair[1] for pair in shown] == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)]
    assert [step.is_first.tolist() for step in steps] == [[i in (0, 3), i in (0, 4)] for i in range(6)]
    assert [step.is_last.tolist() for step in steps] == [[i in (2, 5), i == 3] for i in range(6)]
    assert [step.discount.tolist() for step in steps] == [[0.0 if i in (2, 5) else 1.0, 1.0] for i in range(6)]
    assert [step.reward.tolist() for step in steps] == [[0, 0], [11, 11], [12, 12], [0, 13], [21, 0], [22, 21]]


def test_missions_in_bytes_are_the_tokens_of_their_text() -> None:
    env = make_env("envpool:MiniGrid-Test-v0")
    timestep = env.make_vector_env(2, 0).reset()
    np.testing.assert_array_equal(timestep.observation["mission"], tokenize(MISSIONS))
    for name, space in env.spec.observation.items():
        assert timestep.observation[name].shape == (2, *space.shape)
        assert timestep.observation[name].dtype == space.dtype


def test_spec_has_the_limit_and_the_success_of_minigrid() -> None:
    spec = make_env("envpool:MiniGrid-Test-v0", max_episode_steps=9).spec
    assert (spec.max_steps, spec.success_threshold, spec.action.discrete) == (9, 0.0, (7,))
    assert make_env("envpool:MiniGrid-Test-v0", max_episode_steps=0).spec.max_steps == 100_000


def test_actions_rendering_and_closing_reach_the_pool(stand_in: list[dict[str, Any]]) -> None:
    pool: Any = make_env("envpool:MiniGrid-Test-v0", num_threads=3).make_vector_env(2, 0)
    pool.reset()
    act(pool, 5)
    np.testing.assert_array_equal(pool._pool.actions, [[5, 5]])
    assert (pool.render() == np.full((4, 5, 3), 7)).all()
    pool.close()
    assert pool._pool.closed
    assert (stand_in[0]["num_envs"], stand_in[0]["num_threads"]) == (2, 3)


def test_close_seeds_start_far_apart(stand_in: list[dict[str, Any]]) -> None:
    env: Any = make_env("envpool:MiniGrid-Test-v0")
    for seed in (0, 1, 2**32 - 1):
        env.make_vector_env(2, seed)
    seeds = sorted(options["seed"] for options in stand_in)
    assert min(np.diff(seeds)) > 10_000
    assert seeds[0] >= 0
    assert seeds[-1] < 2**31


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("MiniGrid-Tst-v0", {}, "unknown environment 'envpool:MiniGrid-Tst-v0': .* similar ones are envpool:Mini"),
        ("Zzz", {}, "EnvPool has 4 IDs; none is similar"),
        ("MiniGrid-Test-v0", {"seed": 3}, "env_kwargs names 'seed'"),
        ("MiniGrid-Test-v0", {"size": 3}, "'envpool:MiniGrid-Test-v0' cannot be made: TypeError: .*'size'"),
        ("MiniGrid-MultiRoom-N6-v0", {}, "not supported: .*; Farama's own is gymnasium:minigrid:MiniGrid-Multi"),
        ("Doom-v1", {}, "is not supported: it writes into the working directory"),
        ("Crowd-v0", {}, "has 2 players: only environments with one are supported"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_refused_in_one_line(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        make_env(f"envpool:{name}", **options)
    assert "\n" not in str(error.value)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    monkeypatch.delitem(sys.modules, "byol_explore.envs.envpool_env")
    with pytest.raises(UserError, match=r"envpool:MiniGrid-Test-v0 needs envpool: pip install 'byol-explore\[envpo"):
        make_env("envpool:MiniGrid-Test-v0")


def test_the_list_of_environments_names_the_family() -> None:
    assert list_environments()["EnvPool"] == [
        "envpool:ID for every registered ID, for example envpool:MiniGrid-KeyCorridorS3R3-v0"
    ]
