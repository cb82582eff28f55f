"""TorchRL: rewards at every step and learning from collected batches, in a scripted environment."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torchrl.collectors import Collector
from torchrl.envs import Compose, GymWrapper, SerialEnv, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs

from byol_explore import Curiosity, UserError
from byol_explore.integrations.torchrl import CuriosityHook, CuriosityTransform
from dropins import SMALL, assert_same
from envs.scripted import Scripted

ENVS, STEPS = 2, 8


def curiosity(num_envs: int = ENVS, space: Any = Scripted.observation_space) -> Curiosity:
    return Curiosity(space, Scripted.action_space, num_envs, settings=SMALL)


def scripted(envs: int = ENVS, *, categorical: bool = True) -> Any:
    def make() -> GymWrapper:
        return GymWrapper(Scripted(), categorical_action_encoding=categorical)

    return make() if envs == 1 else SerialEnv(envs, make)


def batches(env: Any, count: int) -> list[Any]:
    torch.manual_seed(0)
    env.set_seed(0)
    frames = STEPS * max(1, env.batch_size.numel())
    collector = Collector(env, env.rand_action, frames_per_batch=frames, total_frames=count * frames)
    found = [batch.clone() for batch in collector]
    collector.shutdown()
    return found


class Recorded(Curiosity):
    """Records the arguments of `learn`."""

    given: Any = None

    def learn(self, *given: Any, **options: Any) -> Any:
        self.given = given
        return super().learn(*given, **options)


@pytest.mark.parametrize("categorical", [True, False])
@pytest.mark.parametrize("envs", [1, 2])
def test_curiosity_gets_true_final_observations(envs: int, categorical: bool) -> None:
    """The scripted observation contains the episode, the step and the previous action."""
    mine = Recorded(Scripted.observation_space, Scripted.action_space, envs, settings=SMALL)
    CuriosityHook(mine)(batches(scripted(envs, categorical=categorical), 1)[0])
    obs, actions, after, terminated, truncated = (x.numpy() for x in mine.given)
    assert obs.shape == (STEPS, envs, 4)
    np.testing.assert_array_equal(after[..., 1], obs[..., 1])
    np.testing.assert_array_equal(after[..., 2], obs[..., 2] + 1)
    np.testing.assert_array_equal(after[..., 3], actions)
    lengths = np.asarray([2, 3, 1])[(obs[..., 0] + obs[..., 1] - 1).astype(int) % 3]
    np.testing.assert_array_equal(terminated | truncated, after[..., 2] == lengths)
    np.testing.assert_array_equal(truncated, (after[..., 2] == lengths) & (lengths == 3))


@pytest.mark.parametrize("regime", ["mixed", "intrinsic"])
def test_a_batch_gets_the_rewards_of_learn(regime: str) -> None:
    given, plain = batches(scripted(), 2), curiosity()
    hook = CuriosityHook(curiosity(), mixing=0.5, regime=regime)
    for batch in given:
        steps = batch.transpose(0, 1)
        after = steps["next"]
        flags = [after[name].squeeze(-1) for name in ("terminated", "truncated")]
        rewards, metrics = plain.learn(steps["observation"], steps["action"], after["observation"], *flags)
        reward = batch["next", "reward"].clone()
        found = hook(batch)
        intrinsic = rewards.T[..., None]
        assert torch.equal(found["next", "intrinsic_reward"], intrinsic)
        expected = intrinsic if regime == "intrinsic" else reward + 0.5 * intrinsic
        torch.testing.assert_close(found["next", "reward"], expected)
        assert hook.metrics == metrics
    assert_same(hook.curiosity, plain)


@pytest.mark.parametrize("envs", [1, 2])
def test_a_transform_adds_rewards_at_every_step(envs: int) -> None:
    """`step` returns what `reward` returns for the same steps and statistics, and 0 before the first `learn`."""
    mine, other = curiosity(envs), curiosity(envs)
    env = TransformedEnv(scripted(envs), CuriosityTransform(mine))
    first, second = batches(env, 2)
    assert first["next", "intrinsic_reward"].shape == (*first.batch_size, 1)
    assert not first["next", "intrinsic_reward"].any()
    for one in (mine, other):
        CuriosityHook(one)(first.clone())
    assert not second["next", "intrinsic_reward"].any()  # which was collected before
    third = env.rollout(STEPS, break_when_any_done=False)
    rewards = third["next", "intrinsic_reward"]
    assert (rewards > 0).any()
    steps = third.reshape(envs, -1).transpose(0, 1)
    after = steps["next"]
    flags = [after[name].squeeze(-1) for name in ("terminated", "truncated")]
    other.reset()
    expected = other.reward(steps["observation"], steps["action"], after["observation"], *flags)
    torch.testing.assert_close(rewards.reshape(envs, -1), expected.T, rtol=1e-4, atol=1e-5)


def test_specs_are_correct_and_a_step_counter_ends_episodes() -> None:
    mine = Curiosity(
        gymnasium.make("Pendulum-v1").observation_space, gymnasium.make("Pendulum-v1").action_space, 1, settings=SMALL
    )  # fmt: skip
    counted = Compose(StepCounter(5), CuriosityTransform(mine))
    env = TransformedEnv(GymWrapper(gymnasium.make("Pendulum-v1")), counted)
    check_env_specs(env)
    mine.reset()
    for batch in batches(env, 3):
        CuriosityHook(mine)(batch)
    record = mine.progress.record
    assert (record.calls, record.discontinuities, record.repeated_final_obs) == (3, 0, 0)
    assert record.episode_ends == 4  # after 5, 10, 15 and 20 steps


def test_entries_are_read_by_their_names() -> None:
    space = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (2,)), "kind": spaces.Discrete(3)})

    class Several(Scripted):
        observation_space = space
        action_space = spaces.Discrete(50)

        def _observation(self, action: int) -> Any:
            return {"x": np.zeros(2, np.float32), "kind": np.int64(self.step_count % 3)}

    batch = batches(GymWrapper(Several()), 1)[0]
    mine = Recorded(space, Scripted.action_space, 1, settings=SMALL)
    CuriosityHook(mine)(batch)
    assert mine.given[2]["kind"].ravel().tolist() == [1, 2, 0, 1, 1, 2, 1, 2]  # of episodes of 3, 1, 2 and 3 steps


def test_a_loaded_hook_continues_exactly(tmp_path: Any) -> None:
    given = batches(scripted(), 3)
    hook = CuriosityHook(curiosity())
    hook(given[0].clone())
    torch.save(hook.state_dict(), tmp_path / "hook.pt")
    loaded = CuriosityHook(Curiosity(Scripted.observation_space, Scripted.action_space, ENVS, seed=7, settings=SMALL))
    loaded.load_state_dict(torch.load(tmp_path / "hook.pt"))
    for batch in given[1:]:
        assert torch.equal(hook(batch.clone())["next", "reward"], loaded(batch.clone())["next", "reward"])
    assert_same(hook.curiosity, loaded.curiosity)


class Trainer:
    """The part of TorchRL's Trainer that hooks use."""

    def __init__(self) -> None:
        self.modules, self.ops = {}, []

    def register_module(self, name: str, module: Any) -> None:
        self.modules[name] = module

    def register_op(self, place: str, op: Any) -> None:
        self.ops.append((place, op))


def test_a_hook_registers_with_a_trainer() -> None:
    trainer, hook = Trainer(), CuriosityHook(curiosity())
    hook.register(trainer)
    assert (trainer.modules, trainer.ops) == ({"curiosity": hook}, [("batch_process", hook)])


def test_batches_of_other_shapes_are_refused() -> None:
    batch = batches(scripted(), 1)[0]
    with pytest.raises(UserError, match=r"in a batch of shape \(2,\): it must be \(3,\), as the curiosity has it"):
        CuriosityHook(curiosity(3))(batch)
    with pytest.raises(UserError, match=r"in a batch of shape \(\): it must be \(2,\)"):
        TransformedEnv(scripted(1), CuriosityTransform(curiosity(2))).rollout(1)
    batch["collector", "mask"] = torch.ones(batch.batch_size, dtype=torch.bool)
    with pytest.raises(UserError, match=r"is split into trajectories: it must be as environments were stepped"):
        CuriosityHook(curiosity())(batch)
    with pytest.raises(UserError, match="unknown regime 'all'"):
        CuriosityHook(curiosity(), regime="all")


def test_wrong_state_dicts_are_refused() -> None:
    hook = CuriosityHook(curiosity())
    with pytest.raises(UserError, match=r"the state has \['other'\]: it must have 'curiosity'"):
        hook.load_state_dict({"other": 1})
    with pytest.raises(UserError, match=r"the state is damaged, .*: it is no archive of arrays"):
        hook.load_state_dict({"curiosity": torch.zeros(9, dtype=torch.uint8)})


def test_wrong_batches_are_refused() -> None:
    batch = batches(scripted(), 1)[0]
    with pytest.raises(UserError, match="the batch is a dict: it must be a TensorDict, as collectors make them"):
        CuriosityHook(curiosity())({})  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=r"the batch is of shape \(2, 0\): it must have at least one step"):
        CuriosityHook(curiosity())(batch[:, :0])
    with pytest.raises(UserError, match=r"unknown entry of the batch 'pixels'; .*choose from: .*observation"):
        CuriosityHook(curiosity(), observation_key="pixels")(batch)
    with pytest.raises(UserError, match=r"unknown entry of the batch 'terminated' .*; "):
        CuriosityHook(curiosity())(batch.exclude(("next", "terminated")))


@pytest.mark.parametrize("categorical", [True, False])
def test_multi_discrete_actions_are_read_in_both_encodings(categorical: bool) -> None:
    parts = spaces.MultiDiscrete([2, 3])

    class Handed(Scripted):
        action_space = parts

        def step(self, action: Any) -> Any:
            return super().step(int(3 * action[0] + action[1]))

    batch = batches(GymWrapper(Handed(), categorical_action_encoding=categorical), 1)[0]
    mine = Recorded(Scripted.observation_space, parts, 1, settings=SMALL)
    CuriosityHook(mine)(batch)
    actions, after = mine.given[1].numpy(), mine.given[2].numpy()
    assert actions.shape == (STEPS, 1, 2)
    np.testing.assert_array_equal(after[..., 3], 3 * actions[..., 0] + actions[..., 1])


def test_a_reset_begins_new_episodes() -> None:
    mine = curiosity()
    env = TransformedEnv(scripted(), CuriosityTransform(mine))
    env.rollout(1)
    assert not mine.progress.reward_position[0].is_first.all()
    env.reset()
    assert mine.progress.reward_position[0].is_first.all()
