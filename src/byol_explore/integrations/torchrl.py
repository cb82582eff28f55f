"""Curiosity for TorchRL: a transform that pays at every step, and a hook that learns from what a collector brings.

    env = TransformedEnv(SerialEnv(8, make), Compose(StepCounter(200), CuriosityTransform(curiosity)))
    hook = CuriosityHook(curiosity, mixing=0.1)
    for batch in Collector(env, policy, frames_per_batch=1024, total_frames=100_000):
        batch = hook(batch)  # and now advantages, losses, optimizers

Both write `("next", "intrinsic_reward")`. TorchRL's optimizers cannot train the networks of a curiosity, which are
JAX's, so there is no loss module: the hook trains them. In a `Trainer`, `hook.register(trainer)` is all, and its
checkpoints hold the curiosity. Batches are [T] of one environment or [num_envs, T], not split into trajectories.
"""

import io
from typing import Any

from gymnasium import spaces

from byol_explore.dropin import saving
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.dropin.paying import check_curiosity, check_payment, mixed
from byol_explore.errors import UserError, unknown
from byol_explore.extras import needed_by

with needed_by("byol_explore.integrations.torchrl"):
    from tensordict import TensorDictBase  # pyright: ignore[reportMissingImports]
    from torchrl.data import Unbounded  # pyright: ignore[reportMissingImports]
    from torchrl.envs import Transform  # pyright: ignore[reportMissingImports]
    from torchrl.trainers import TrainerHookBase  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]

INTRINSIC = "intrinsic_reward"


class CuriosityTransform(Transform):
    """Pays at every step by what was learned so far.

    It comes after what ends episodes, such as a StepCounter, and after what changes observations in their place, such
    as an ObservationNorm: before that it would be shown unchanged what a step led to, and changed a step later.
    """

    def __init__(self, curiosity: Curiosity, observation_key: str = "observation", action_key: str = "action") -> None:
        super().__init__(in_keys=[], out_keys=[INTRINSIC])
        check_curiosity(curiosity)
        self.curiosity, self._keys = curiosity, (observation_key, action_key)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        """With what was paid in the second of the two."""
        _check_size(self.curiosity, tensordict.batch_size)
        lead = (self.curiosity.num_envs,)
        before, after = tensordict.reshape(lead), next_tensordict.reshape(lead)
        paid = self.curiosity.step(*_transition(self.curiosity, before, after, self._keys))
        return next_tensordict.set(INTRINSIC, paid.reshape(*tensordict.batch_size, 1))

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        """Episodes that are given up have ended; the hook is told by what the collector says of them."""
        mask = tensordict.get("_reset", None)
        if mask is not None:
            mask = mask.reshape(self.curiosity.num_envs, -1).any(-1)
        self.curiosity.reset(mask, of_steps=True)
        return tensordict_reset

    def transform_reward_spec(self, reward_spec: Any) -> Any:
        """One more reward, of one number."""
        shape = torch.Size((*reward_spec.shape, 1))
        reward_spec[INTRINSIC] = Unbounded(shape, device=reward_spec.device, dtype=torch.float32)
        return reward_spec


class CuriosityHook(TrainerHookBase):
    """Learns from batches, and adds what it pays for them to their rewards: before advantages are computed."""

    def __init__(
        self,
        curiosity: Curiosity,
        mixing: float = 0.1,
        regime: str = "mixed",
        observation_key: str = "observation",
        action_key: str = "action",
    ) -> None:
        check_curiosity(curiosity)
        check_payment(mixing, regime)
        self.curiosity, self.mixing, self.regime = curiosity, mixing, regime
        self.metrics: dict[str, Any] = {}
        self._keys = (observation_key, action_key)

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """A batch with both rewards in it."""
        if not isinstance(batch, TensorDictBase):
            raise UserError(f"the batch is a {type(batch).__name__}: it must be a TensorDict, as collectors make them")
        if ("collector", "mask") in batch.keys(include_nested=True):
            raise UserError("the batch is split into trajectories: it must be as environments were stepped, [B, T]")
        _check_size(self.curiosity, batch.batch_size[:-1])
        if not batch.batch_size.numel():
            raise UserError(f"the batch is of shape {tuple(batch.batch_size)}: it must have at least one step")
        steps = batch.reshape(self.curiosity.num_envs, -1).transpose(0, 1)
        given = _transition(self.curiosity, steps, steps["next"], self._keys)
        intrinsic, self.metrics = self.curiosity.learn(*given)
        intrinsic = intrinsic.transpose(0, 1).reshape(*batch.batch_size, 1)
        batch["next", INTRINSIC] = intrinsic
        batch["next", "reward"] = mixed(batch["next", "reward"], intrinsic, self.mixing, self.regime)
        return batch

    def register(self, trainer: Any, name: str = "curiosity") -> None:
        """Before anything else that a trainer does to its batches, if it is the first hook to be registered."""
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self)

    def state_dict(self) -> dict[str, Any]:
        """All of the curiosity."""
        return {"curiosity": torch.frombuffer(bytearray(saving.pack(self.curiosity)), dtype=torch.uint8)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """For the curiosity to go on as if nothing had happened."""
        if "curiosity" not in state_dict:
            raise UserError(f"the state has {sorted(state_dict)}: it must have 'curiosity', as state_dict makes it")
        content = io.BytesIO(state_dict["curiosity"].cpu().numpy().tobytes())
        given, arrays = saving.unpack(content, "the state")
        self.curiosity.progress = saving.restore(self.curiosity, arrays, "the state")
        self.curiosity.seed = given["seed"]


def _check_size(curiosity: Curiosity, size: Any) -> None:
    if tuple(size) not in {(curiosity.num_envs,), ()} or (not size and curiosity.num_envs > 1):
        raise UserError(
            f"environments are in a batch of shape {tuple(size)}: it must be ({curiosity.num_envs},), as the curiosity "
            "has it (num_envs)"
        )


def _transition(curiosity: Curiosity, before: Any, after: Any, keys: tuple[str, str]) -> tuple[Any, ...]:
    """What a curiosity takes, of two tensordicts of the same leading axes."""
    seen, done = curiosity.reader.observation_space, curiosity.reader.action_space
    terminated = _entry(after, "terminated").squeeze(-1)
    truncated = _entry(after, "done").squeeze(-1) & ~terminated
    obs, next_obs = (_observation(td, seen, keys[0]) for td in (before, after))
    return obs, _category(_entry(before, keys[1]), done, before.ndim), next_obs, terminated, truncated


def _observation(tensordict: Any, space: Any, key: str) -> Any:
    """By its key, or where there are several entries each by its own."""
    if isinstance(space, spaces.Dict):
        return {name: _category(_entry(tensordict, name), part, tensordict.ndim) for name, part in space.spaces.items()}
    return _category(_entry(tensordict, key), space, tensordict.ndim)


def _entry(tensordict: Any, key: str) -> Any:
    found = tensordict.get(key, None)
    if found is None:
        raise unknown("entry of the batch", key, sorted(map(str, tensordict.keys())))
    return found


def _category(x: Any, space: Any, axes: int) -> Any:
    """One number where TorchRL has as many as there are categories."""
    if isinstance(space, spaces.MultiDiscrete) and x.shape[-1] == space.nvec.sum() != space.nvec.size:
        parts = x.long().split(space.nvec.ravel().tolist(), -1)
        return torch.stack([part.argmax(-1) for part in parts], -1).reshape(*x.shape[:-1], *space.shape)
    return x.long().argmax(-1) if isinstance(space, spaces.Discrete) and x.ndim > axes else x
