"""A training run as two pure functions: equal to a run of Anakin, mapped over seeds and hyperparameters."""

import dataclasses
import doctest
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import byol_explore.runtime.anakin
from builders import assert_trees_close, jit, small_config
from byol_explore import UserError, make_config, make_train
from byol_explore.config.config import Config
from byol_explore.config.sections import RuntimeConfig
from byol_explore.envs.registry import make_envs
from byol_explore.runtime.anakin import Anakin, AnakinState


def config_for(**changes: Any) -> Config:
    runtime = RuntimeConfig(num_envs=8, batch_size=4, sequence_length=7, rounds_per_dispatch=2)
    return dataclasses.replace(small_config(**changes), env="probe:terminated", runtime=runtime)


def readable(tree: Any) -> Any:
    """Replace random keys by their numbers."""
    return jax.tree.map(
        lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x, tree
    )  # fmt: skip


@functools.cache
def two_rounds(seed: int = 0) -> tuple[AnakinState, AnakinState, dict[str, Any]]:
    """Return the state before and after two rounds, and the metrics of the second."""
    init, update = make_train(config_for())
    program, state = jit(update), jit(init)(jax.random.key(seed))
    after, _ = program(state)
    return state, *program(after)


def test_rounds_are_those_of_a_run() -> None:
    config = config_for()
    before, after, metrics = two_rounds()
    expected, output = Anakin(config, make_envs(config.env_ids), jax.devices()[:1]).dispatch(  # pyright: ignore[reportArgumentType]
        jax.tree.map(jnp.copy, before)
    )
    assert_trees_close(readable(after), readable(expected), rtol=1e-3, atol=1e-4)
    updates = len(output.metrics["loss"]) // 2
    for name in ("loss", "prediction_error", "uncertainty"):
        np.testing.assert_allclose(metrics[name], np.mean(output.metrics[name][updates:], axis=0), rtol=1e-3)
    episodes = output.rollouts[1].episodes
    assert int(metrics["episodes"]) == np.sum(episodes.ended) > 0
    mean = np.mean(episodes.episode_return[episodes.ended])
    np.testing.assert_allclose(metrics["episode_return"], mean, rtol=1e-4, atol=1e-6)


def test_seeds_and_hyperparameters_side_by_side() -> None:
    """Two seeds equal two runs; with another learning rate the second one ends elsewhere."""
    init, update = make_train(config_for())  # learning rate 1e-3
    many = jit(jax.vmap(update))
    shapes = jax.eval_shape(jax.vmap(init), jax.random.split(jax.random.key(0), 2))
    assert shapes.learner.hyperparams.learning_rate.shape == (2,)
    both = jax.tree.map(lambda *xs: jnp.stack(xs), *(two_rounds(seed)[0] for seed in (0, 1)))
    after, _ = many(many(both)[0])
    for seed in (0, 1):
        one = jax.tree.map(lambda x, i=seed: x[i], after)
        assert_trees_close(readable(one), readable(two_rounds(seed)[1]), rtol=1e-3, atol=1e-4)
    rates = both.learner.hyperparams._replace(learning_rate=jnp.asarray([1e-3, 1e-2]))
    changed = both._replace(learner=both.learner._replace(hyperparams=rates))
    other, _ = many(many(changed)[0])
    pairs = [[jax.tree.leaves(state.learner.online.curiosity)[0][i] for state in (other, after)] for i in (0, 1)]
    same, moved = (float(jnp.max(jnp.abs(x - y))) for x, y in pairs)
    assert same < 1e-5
    assert moved > 1e-3


def test_environments_outside_jit_are_refused() -> None:
    with pytest.raises(UserError, match="env is 'gymnasium:CartPole-v1', which is outside jit"):
        make_train(make_config(env="gymnasium:CartPole-v1"))


def test_the_example_in_the_docstring_is_right() -> None:
    assert doctest.testmod(byol_explore.runtime.anakin).attempted == 6
    assert doctest.testmod(byol_explore.runtime.anakin).failed == 0
