"""What all images share is measured before training and taken off by every image encoder."""

import dataclasses

import jax
import numpy as np
import pytest

from byol_explore.envs.atari import Atari
from byol_explore.networks.encoders import ImageEncoder
from byol_explore.presets import make_config
from byol_explore.runtime.host_actor import mean_observation
from byol_explore.runtime.sebulba import Sebulba

pytestmark = pytest.mark.usefixtures("compiles_quickly")


def small(method: str = "rnd", *, center_images: bool = True) -> Sebulba:
    config = make_config("atari-small", method=method)
    config = dataclasses.replace(
        config,
        network=dataclasses.replace(config.network, center_images=center_images),
        runtime=dataclasses.replace(config.runtime, num_envs=2, batch_size=2, sequence_length=9, deterministic=True),
    )
    return Sebulba(config, [Atari("freeway", workers=1)])


def centers(tree: object) -> list[np.ndarray]:
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, ImageEncoder))
    return [np.asarray(node.center) for node in nodes if isinstance(node, ImageEncoder)]


@pytest.fixture(scope="module")
def runtime() -> Sebulba:
    return small()


def test_all_encoders_have_the_mean_image_and_keep_it(runtime: Sebulba) -> None:
    state = runtime.init(3)
    expected = mean_observation(runtime.envs, 2, seed=3)
    assert expected.shape == (84, 84, 1)
    assert expected.std() > 1.0
    assert len(centers(state.learner.online)) == 2  # the policy's and RND's
    try:
        state, _ = runtime.dispatch(state)
    finally:
        runtime.close()
    for networks in (state.learner.online, state.learner.target, state.learner.acting):
        for center in centers(networks):
            np.testing.assert_allclose(center, expected, rtol=1e-5)


def test_nothing_is_measured_for_a_state_that_is_restored(runtime: Sebulba) -> None:
    measured, restored = runtime.init(3), runtime.init(3, restored=True)
    assert [center.any() for center in centers(restored.learner.online)] == [False, False]
    assert jax.eval_shape(lambda: restored) == jax.eval_shape(lambda: measured)


def test_it_can_be_left_off() -> None:
    state = small("none", center_images=False).init(3)
    assert [center.any() for center in centers(state.learner.online)] == [False]
