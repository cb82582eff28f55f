"""The three autoreset modes, in scripted environments whose transitions are known by hand."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from byol_explore.dropin.autoreset import Adapter, Disabled, NextStep, SameStep, Step, make_adapter, stack_steps
from byol_explore.errors import UserError
from envs.scripted import Scripted

# Episodes of the scripted environment 0 last 2, 3 and 1 steps; the second one is truncated. The columns
# of each transition: episode, step before and after, terminated, truncated.
TRANSITIONS_0 = [
    (1, 0, 1, False, False), (1, 1, 2, True, False),
    (2, 0, 1, False, False), (2, 1, 2, False, False), (2, 2, 3, False, True),
    (3, 0, 1, True, False),
    (4, 0, 1, False, False), (4, 1, 2, True, False),
]  # fmt: skip
# The same of environment 1, whose episodes last 3, 1 and 2 steps; the first one is truncated.
TRANSITIONS_1 = [
    (1, 0, 1, False, False), (1, 1, 2, False, False), (1, 2, 3, False, True),
    (2, 0, 1, True, False),
    (3, 0, 1, False, False), (3, 1, 2, True, False),
    (4, 0, 1, False, False), (4, 1, 2, False, False),
]  # fmt: skip


def play(mode: AutoresetMode, adapter: Adapter, steps: int) -> list[Step]:
    """Step two environments that overwrite their observations, as fast ones do."""
    env = SyncVectorEnv([Scripted, Scripted], copy=False, autoreset_mode=mode)
    obs, _ = env.reset(seed=[0, 1])
    converted = []
    for t in range(steps):
        action, before = np.asarray([t, t]), obs.copy()
        obs, reward, terminated, truncated, infos = env.step(action)
        converted.append(adapter.convert(before, action, obs, reward, terminated, truncated, infos))
        if mode == AutoresetMode.DISABLED and np.any(ended := terminated | truncated):
            obs, _ = env.reset(options={"reset_mask": ended})
            adapter.reset(ended)
    return converted


def transitions_of(steps: list[Step], env: int) -> list[tuple[Any, ...]]:
    """Return the transitions of one environment in the form of the tables above."""
    rows = []
    for step in steps:
        if not step.skipped[env]:
            (_, episode, before, _), (_, same, after, _) = step.obs[env], step.next_obs[env]
            assert episode == same
            rows.append((episode, before, after, bool(step.terminated[env]), bool(step.truncated[env])))
    return rows


@pytest.mark.parametrize(
    ("mode", "adapter", "steps"),
    [(AutoresetMode.SAME_STEP, SameStep(), 8), (AutoresetMode.NEXT_STEP, NextStep(), 11),
     (AutoresetMode.DISABLED, Disabled(), 8)],
)  # fmt: skip
def test_every_mode_gives_the_same_transitions(mode: AutoresetMode, adapter: Adapter, steps: int) -> None:
    converted = play(mode, adapter, steps)
    assert transitions_of(converted, 0) == TRANSITIONS_0
    assert transitions_of(converted, 1) == TRANSITIONS_1
    assert type(make_adapter(mode)) is type(adapter)
    assert stack_steps(converted)["next_obs"].shape == (steps, 2, 4)


def test_next_step_skips_steps_that_only_reset() -> None:
    skipped = np.stack([step.skipped for step in play(AutoresetMode.NEXT_STEP, NextStep(), 11)])
    assert np.flatnonzero(skipped[:, 0]).tolist() == [2, 6, 8]
    assert np.flatnonzero(skipped[:, 1]).tolist() == [3, 5, 8]


def step_result(observation: Any, ended: list[bool], infos: Any) -> tuple[Any, ...]:
    return observation, np.zeros(2), np.asarray(ended), np.zeros(2, bool), infos


@pytest.mark.parametrize(
    "infos",
    [
        {"final_obs": np.asarray([None, {"x": np.ones(1), "y": (np.full(1, 5.0),)}], object)},
        {"final_observation": {"x": np.ones((2, 1)), "y": (np.full((2, 1), 5.0),)}},
        [{}, {"terminal_observation": {"x": np.ones(1), "y": (np.full(1, 5.0),)}}],
    ],
)
def test_final_observations_are_found_in_all_forms_of_infos(infos: Any) -> None:
    """Gymnasium 1; Gymnasium 0.29, or batched; Stable-Baselines3. Nested like the observation."""
    seen = {"x": np.zeros((2, 1)), "y": (np.zeros((2, 1)),)}
    step = SameStep().convert(seen, np.zeros(2), *step_result(seen, [False, True], infos))
    assert step.next_obs["x"].ravel().tolist() == [0.0, 1.0]
    assert step.next_obs["y"][0].ravel().tolist() == [0.0, 5.0]
    assert not np.any(seen["x"])


@pytest.mark.parametrize("infos", [{}, {"final_obs": np.asarray([None, None])}, [{}, {}]])
def test_a_missing_final_observation_is_refused(infos: Any) -> None:
    with pytest.raises(UserError, match=r"^environment 1 has ended an episode, but its last observation is not in"):
        SameStep().convert(np.zeros((2, 1)), np.zeros(2), *step_result(np.zeros((2, 1)), [False, True], infos))


def test_disabled_skips_steps_until_the_reset() -> None:
    adapter, seen = Disabled(), np.zeros((2, 1))
    skipped = [adapter.convert(seen, np.zeros(2), *step_result(seen, ended, {})).skipped.tolist()
               for ended in ([True, False], [False, False], [True, False])]  # fmt: skip
    assert skipped == [[False, False], [True, False], [True, False]]
    adapter.reset(np.asarray([True, False]))
    assert not adapter.convert(seen, np.zeros(2), *step_result(seen, [False, False], {})).skipped.any()


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UserError, match="unknown autoreset mode 'later'; choose from: same_step, next_step, disabled"):
        make_adapter("later")
