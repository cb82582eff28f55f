"""Curiosity for TorchRL: a transform that adds rewards at every step, and a hook that learns from collected batches.

    env = TransformedEnv(SerialEnv(8, make), Compose(StepCounter(200), CuriosityTransform(curiosity)))
    hook = CuriosityHook(curiosity, mixing=0.1)
    for batch in Collector(env, policy, frames_per_batch=1024, total_frames=100_000):
        batch = hook(batch)  # then advantages, losses, optimizers

Both write `("next", "intrinsic_reward")`. The hook trains the networks; there is no loss module, because TorchRL's
optimizers cannot train networks of JAX. In a `Trainer`, call `hook.register(trainer)`; its checkpoints then contain the
curiosity. Batches are [T] of one environment or [num_envs, T], not split into trajectories.
"""

from typing import Any

from gymnasium import spaces

from byol_explore.dropin import saving
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.dropin.vector_env import check_curiosity, check_mixing, mix_rewards
from byol_explore.errors import UserError, unknown_name
from byol_explore.utils.packages import require_extra

with require_extra("byol_explore.integrations.torchrl"):
    from tensordict import TensorDictBase  # pyright: ignore[reportMissingImports]
    from torchrl.data import Unbounded  # pyright: ignore[reportMissingImports]
    from torchrl.envs import Transform  # pyright: ignore[reportMissingImports]
    from torchrl.trainers import TrainerHookBase  # pyright: ignore[reportMissingImports]

# After TorchRL: the error names the extra only if that is missing first.
import torch  # pyright: ignore[reportMissingImports]

INTRINSIC = "intrinsic_reward"


class CuriosityTransform(Transform):
    """Adds an intrinsic reward to every step, without learning.

    It goes after transforms that end episodes, such as StepCounter, and after transforms that change observations in
    place, such as ObservationNorm: before those, it would read an observation unchanged after one step and changed
    before the next.

    Args:
      curiosity: a Curiosity for the spaces and number of environments.
      observation_key: entry of the observation, if the space is not a Dict.
      action_key: entry of the action.
    """

    def __init__(self, curiosity: Curiosity, observation_key: str = "observation", action_key: str = "action") -> None:
        super().__init__(in_keys=[], out_keys=[INTRINSIC])
        check_curiosity(curiosity)
        self.curiosity, self._keys = curiosity, (observation_key, action_key)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Return `next_tensordict` with the intrinsic reward [*batch, 1]."""
        _check_size(self.curiosity, tensordict.batch_size)
        lead = (self.curiosity.num_envs,)
        before, after = tensordict.reshape(lead), next_tensordict.reshape(lead)
        intrinsic = self.curiosity.step(*_transition(self.curiosity, before, after, self._keys))
        return next_tensordict.set(INTRINSIC, intrinsic.reshape(*tensordict.batch_size, 1))

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        """Start new episodes; the hook sees the truncations in its batch."""
        mask = tensordict.get("_reset", None)
        if mask is not None:
            mask = mask.reshape(self.curiosity.num_envs, -1).any(-1)
        self.curiosity.reset(mask, steps_only=True)
        return tensordict_reset

    def transform_reward_spec(self, reward_spec: Any) -> Any:
        """Add the intrinsic reward, [*batch, 1] float32."""
        shape = torch.Size((*reward_spec.shape, 1))
        reward_spec[INTRINSIC] = Unbounded(shape, device=reward_spec.device, dtype=torch.float32)
        return reward_spec


class CuriosityHook(TrainerHookBase):
    """Learns from batches and adds intrinsic rewards to them, before advantages are computed.

    Args:
      curiosity: a Curiosity for the spaces and number of environments.
      mixing: weight of the intrinsic reward.
      regime: "mixed" (extrinsic + mixing * intrinsic) or "intrinsic" (the intrinsic reward alone).
      observation_key: entry of the observation, if the space is not a Dict.
      action_key: entry of the action.
    """

    def __init__(
        self,
        curiosity: Curiosity,
        mixing: float = 0.1,
        regime: str = "mixed",
        observation_key: str = "observation",
        action_key: str = "action",
    ) -> None:
        check_curiosity(curiosity)
        check_mixing(mixing, regime)
        self.curiosity, self.mixing, self.regime = curiosity, mixing, regime
        self.metrics: dict[str, Any] = {}
        self._keys = (observation_key, action_key)

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Learn from a batch [T] or [num_envs, T]; returns it with mixed and intrinsic rewards."""
        if not isinstance(batch, TensorDictBase):
            raise UserError(f"the batch is a {type(batch).__name__}: it must be a TensorDict, as collectors make them")
        if ("collector", "mask") in batch.keys(include_nested=True):
            raise UserError("the batch is split into trajectories: it must be as environments were stepped, [B, T]")
        _check_size(self.curiosity, batch.batch_size[:-1])
        if not batch.batch_size.numel():
            raise UserError(f"the batch is of shape {tuple(batch.batch_size)}: it must have at least one step")
        steps = batch.reshape(self.curiosity.num_envs, -1).transpose(0, 1)
        intrinsic, self.metrics = self.curiosity.learn(*_transition(self.curiosity, steps, steps["next"], self._keys))
        intrinsic = intrinsic.transpose(0, 1).reshape(*batch.batch_size, 1)
        batch["next", INTRINSIC] = intrinsic
        batch["next", "reward"] = mix_rewards(batch["next", "reward"], intrinsic, self.mixing, self.regime)
        return batch

    def register(self, trainer: Any, name: str = "curiosity") -> None:
        """Register with a trainer. Register it before other hooks, so that they see mixed rewards."""
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self)

    def state_dict(self) -> dict[str, Any]:
        """Return the bytes of `Curiosity.save` as a tensor."""
        return {"curiosity": torch.frombuffer(bytearray(saving.to_bytes(self.curiosity)), dtype=torch.uint8)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        if "curiosity" not in state_dict:
            raise UserError(f"the state has {sorted(state_dict)}: it must have 'curiosity', as state_dict makes it")
        arguments, arrays = saving.from_bytes(state_dict["curiosity"].cpu().numpy().tobytes(), "the state")
        self.curiosity.progress = saving.restore(self.curiosity, arrays, "the state")
        self.curiosity.seed = arguments["seed"]


def _check_size(curiosity: Curiosity, size: Any) -> None:
    if tuple(size) not in {(curiosity.num_envs,), ()} or (not size and curiosity.num_envs > 1):
        raise UserError(
            f"environments are in a batch of shape {tuple(size)}: it must be ({curiosity.num_envs},), as the curiosity "
            "has it (num_envs)"
        )


def _transition(curiosity: Curiosity, before: Any, after: Any, keys: tuple[str, str]) -> tuple[Any, ...]:
    """Return the arguments of a Curiosity from two tensordicts with the same leading axes."""
    observations, actions = curiosity.reader.observation_space, curiosity.reader.action_space
    terminated = _entry(after, "terminated").squeeze(-1)
    truncated = _entry(after, "done").squeeze(-1) & ~terminated
    obs, next_obs = (_observation(td, observations, keys[0]) for td in (before, after))
    return obs, _category(_entry(before, keys[1]), actions, before.ndim), next_obs, terminated, truncated


def _observation(tensordict: Any, space: Any, key: str) -> Any:
    """Return the entry `key`, or all entries of a Dict by their names."""
    if isinstance(space, spaces.Dict):
        return {name: _category(_entry(tensordict, name), part, tensordict.ndim) for name, part in space.spaces.items()}
    return _category(_entry(tensordict, key), space, tensordict.ndim)


def _entry(tensordict: Any, key: str) -> Any:
    found = tensordict.get(key, None)
    if found is None:
        raise unknown_name("entry of the batch", key, sorted(map(str, tensordict.keys())))
    return found


def _category(x: Any, space: Any, axes: int) -> Any:
    """Convert TorchRL's one-hot categories to numbers."""
    if isinstance(space, spaces.MultiDiscrete) and x.shape[-1] == space.nvec.sum() != space.nvec.size:
        parts = x.long().split(space.nvec.ravel().tolist(), -1)
        return torch.stack([part.argmax(-1) for part in parts], -1).reshape(*x.shape[:-1], *space.shape)
    return x.long().argmax(-1) if isinstance(space, spaces.Discrete) and x.ndim > axes else x
