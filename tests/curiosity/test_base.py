"""Methods and algorithms of one's own: what they may leave out, and what is refused of them in one line."""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, make_spec, make_trajectory, small_actor, small_config
from byol_explore.algorithms.base import Algorithm
from byol_explore.algorithms.vmpo import VMPO
from byol_explore.curiosity.base import Curiosity, CuriosityOutput, Materials, ask
from byol_explore.errors import UserError
from byol_explore.learner import Learner
from byol_explore.learner_state import Batch
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.settings.parts import NetworkConfig
from byol_explore.spaces import Vector
from byol_explore.types import Array, Sequence

SPEC = make_spec("vector")


class Flat(Curiosity):
    """As uncertain of everything, and says no more than it must."""

    reads_representation = False

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        return cls()

    def __call__(self, state: Any, view: Any, sequence: Any) -> Any:
        return CuriosityOutput(jnp.zeros(()), 3.0 * jnp.ones(sequence.valid.shape), {})


class Short(Flat):
    def __call__(self, state: Any, view: Any, sequence: Any) -> Any:
        return CuriosityOutput(jnp.zeros(()), jnp.ones((2, 2)), {})


class Losses(Flat):
    def __call__(self, state: Any, view: Any, sequence: Any) -> Any:
        return CuriosityOutput(jnp.zeros(5), jnp.ones(sequence.valid.shape), {})


class Bare(Flat):
    def __call__(self, state: Any, view: Any, sequence: Any) -> Any:
        return jnp.zeros(())


class Grows(Flat):
    def after(self, state: Any, encoder: Any, sequence: Any) -> Any:
        return jnp.zeros(3)


class Whole(VMPO):
    """Forgets that there is a transition less than there are observations."""

    def targets(self, value: Array, reward: Array, discount: Array, valid: Array) -> tuple[Array, Array]:
        return value, value


class Unmade(Curiosity):
    """Cannot be made."""


class Silent(Curiosity):
    """Says nothing."""

    @classmethod
    def make(cls, materials: Materials, key: Array) -> Self:
        return cls()


class Aimless(Algorithm):
    """Makes no targets."""


class Lossless(VMPO):
    """Has targets and lost its loss."""

    loss = Algorithm.loss


class Blind(ObservationEncoder):
    """Reads vectors, and cannot be made."""

    reads = (Vector,)


def sequence() -> Sequence:
    return make_trajectory(SPEC, small_actor(SPEC)).sequence


def test_a_method_need_not_say_how_wrong_it_was() -> None:
    output = ask(Flat(), (), None, sequence())  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(output.metrics["prediction_error"], [3.0])


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Short(), rf"method Short .* an uncertainty of shape \(2, 2\).* \({TIME - 1}, {BATCH}\)$"),
        (Losses(), r"method Losses .* a loss of shape \(5,\): it must be \(\)$"),
        (Bare(), "method Bare answers with .*: it must be a CuriosityOutput$"),
    ],
)
def test_what_a_method_may_not_say_is_named(method: Curiosity, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        ask(method, (), None, sequence())  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(caught.value)


def learn(**changes: Any) -> Any:
    learner = Learner(dataclasses.replace(small_config(), **changes), SPEC, 1)
    state = jax.eval_shape(learner.init, jax.random.key(0))
    return jax.eval_shape(learner.update, state, Batch(make_trajectory(SPEC, small_actor(SPEC))))


def test_the_learner_asks_and_moves_in_this_way() -> None:
    with pytest.raises(UserError, match="method Short"):
        learn(method=f"{__name__}:Short")
    with pytest.raises(UserError, match="method Grows: after makes a state of other types or shapes than init"):
        learn(method=f"{__name__}:Grows")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "Unmade"}, "Unmade does not define make"),
        ({"method": "Silent"}, "Silent does not define __call__"),
        ({"algorithm": "Aimless"}, "Aimless does not define targets"),
        ({"algorithm": "Lossless"}, "Lossless does not define loss"),
        ({"encoder": "Blind"}, "Blind does not define make"),
    ],
)
def test_what_is_left_out_of_a_part_is_named(changes: dict[str, str], message: str) -> None:
    [(kind, name)] = changes.items()
    path = f"{__name__}:{name}"
    with pytest.raises(UserError, match=rf"^{kind} {__name__}\.{message}: every {kind} must"):
        learn(**({"network": NetworkConfig(encoder=path)} if kind == "encoder" else {kind: path}))


def test_targets_for_more_than_the_transitions_are_refused() -> None:
    with pytest.raises(UserError, match=rf"algorithm Whole makes value targets of .* \({TIME - 1}, {BATCH}\)"):
        learn(algorithm=f"{__name__}:Whole")
