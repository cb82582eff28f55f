"""Reading inside jit against reading with NumPy, for spaces of Gymnasium."""

from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from builders import assert_trees_close
from byol_explore.curiosity.inputs import TransitionReader
from byol_explore.dropin.inputs import SpaceReader

STEPS, ENVS = 5, 3
CHOSEN = spaces.Dict({
    "turn": spaces.Discrete(3, start=1), "push": spaces.Box(-2.0, np.asarray([2.0, 6.0]), dtype=np.float64),
    "keys": spaces.Tuple([spaces.MultiDiscrete([2, 4], start=[1, -1]), spaces.MultiBinary(2)]),
    "stuck": spaces.Box(np.asarray([0.0, 1.0], np.float32), np.asarray([0.0, 3.0], np.float32)),
})  # fmt: skip
SEEN: dict[str, spaces.Space[Any]] = {
    "numbers": spaces.Box(-np.inf, np.inf, (2, 3)),
    "bytes that are no image": spaces.Box(10, 20, (4,), np.uint8),
    "grey image": spaces.Box(0, 255, (8, 9), np.uint8),
    "channels first": spaces.Box(0, 255, (3, 8, 9), np.uint8),
    "one category": spaces.Discrete(4, start=-1),
    "nested": spaces.Dict({
        "eye": spaces.Box(0, 255, (8, 9, 3), np.uint8),
        "arm": spaces.Tuple([spaces.Box(-1, 1, (2,), np.float64), spaces.MultiDiscrete(np.asarray([[2, 3], [1, 4]]))]),
        "buttons": spaces.MultiBinary(2),
    }),
}  # fmt: skip


def sample(space: spaces.Space[Any]) -> Any:
    """Sample [STEPS, ENVS, ...] from a space, nested like the space."""
    batched = batch_space(batch_space(space, ENVS), STEPS)
    batched.seed(0)
    return batched.sample()


@pytest.mark.parametrize("name", SEEN)
def test_observations_are_those_of_numpy(name: str) -> None:
    given, lead = sample(SEEN[name]), (STEPS, ENVS)
    reader, slow = TransitionReader(SEEN[name], spaces.Discrete(2), ENVS), SpaceReader(SEEN[name], spaces.Discrete(2))
    found = jax.jit(lambda obs: reader.observation(obs, "obs", lead))(given)
    assert_trees_close(found, slow.observations(given, "obs", lead), rtol=1e-6, atol=1e-6)
    dtypes = jax.tree.map(lambda x, kind: x.dtype == kind.dtype, found, reader.spec.observation)
    assert all(jax.tree.leaves(dtypes))
    one_step = jax.tree.map(lambda x: x[0], given)
    alone = jax.jit(lambda obs: reader.observation(obs, "obs", (ENVS,)))(one_step)
    assert_trees_close(alone, jax.tree.map(lambda x: x[0], found), rtol=0, atol=0)


def test_actions_are_those_of_numpy() -> None:
    """The space is nested; results are in the units of a policy."""
    given, lead = sample(CHOSEN), (STEPS, ENVS)
    reader, slow = TransitionReader(SEEN["numbers"], CHOSEN, ENVS), SpaceReader(SEEN["numbers"], CHOSEN)
    found = jax.jit(lambda action: reader.action(action, lead))(given)
    assert_trees_close(found, slow.actions(given, "actions", lead), rtol=1e-5, atol=1e-5)
    assert int(reader.out_of_range(found)) == 0
