"""User-defined methods, algorithms and encoders: what they may omit, and errors in one line for what is wrong."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from builders import BATCH, TIME, make_spec, make_trajectory, small_actor, small_config
from byol_explore.agent.algorithm import VMPO, Algorithm
from byol_explore.agent.learner import Learner
from byol_explore.agent.state import Batch
from byol_explore.config.sections import NetworkConfig
from byol_explore.curiosity.method import IntrinsicMethod, MethodOutput, compute_output
from byol_explore.errors import UserError
from byol_explore.networks.encoders import ObservationEncoder
from byol_explore.spaces import Vector
from byol_explore.types import Array, SequenceBatch

SPEC = make_spec("vector")


class Constant(IntrinsicMethod):
    """The same uncertainty everywhere; defines the minimum."""

    uses_representation = False

    def __call__(self, state: Any, view: Any, sequence: Any) -> Any:
        return MethodOutput(jnp.zeros(()), 3.0 * jnp.ones(sequence.valid.shape), {})


class WrongUncertaintyShape(Constant):
    def __call__(self, state: Any, view: Any, sequence: Any) -> Any:
        return MethodOutput(jnp.zeros(()), jnp.ones((2, 2)), {})


class WrongLossShape(Constant):
    def __call__(self, state: Any, view: Any, sequence: Any) -> Any:
        return MethodOutput(jnp.zeros(5), jnp.ones(sequence.valid.shape), {})


class WrongOutputType(Constant):
    def __call__(self, state: Any, view: Any, sequence: Any) -> Any:
        return jnp.zeros(())


class StateChangesShape(Constant):
    def update_state(self, state: Any, encoder: Any, sequence: Any) -> Any:
        return jnp.zeros(3)


class TargetsPerObservation(VMPO):
    """Makes T targets, though there are T - 1 transitions."""

    def compute_targets(self, value: Array, reward: Array, discount: Array, valid: Array) -> tuple[Array, Array]:
        return value, value


class WithoutCreate(IntrinsicMethod):
    """Has parameters, but does not build them."""

    weight: Array


class WithoutCall(IntrinsicMethod):
    """Defines nothing."""


class WithoutTargets(Algorithm):
    """Defines nothing."""


class WithoutLoss(VMPO):
    """Defines targets only."""

    loss = Algorithm.loss


class WithoutMake(ObservationEncoder):
    """Reads vectors, but does not build its networks."""

    supported_spaces = (Vector,)


def sequence() -> SequenceBatch:
    return make_trajectory(SPEC, small_actor(SPEC)).sequence


def test_prediction_error_is_by_default_the_mean_uncertainty() -> None:
    output = compute_output(Constant(), (), None, sequence())  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(output.metrics["prediction_error"], [3.0])


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (WrongUncertaintyShape(), rf"returns an uncertainty of shape \(2, 2\): it must be \({TIME - 1}, {BATCH}\)$"),
        (WrongLossShape(), r"returns a loss of shape \(5,\): it must be \(\)$"),
        (WrongOutputType(), "returns a .*: it must return a MethodOutput$"),
    ],
)
def test_wrong_outputs_of_a_method_are_refused(method: IntrinsicMethod, message: str) -> None:
    with pytest.raises(UserError, match=f"^method {type(method).__name__} {message}") as caught:
        compute_output(method, (), None, sequence())  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(caught.value)


def learn(**changes: Any) -> Any:
    learner = Learner(dataclasses.replace(small_config(), **changes), SPEC, 1)
    state = jax.eval_shape(learner.init, jax.random.key(0))
    return jax.eval_shape(learner.update, state, Batch(make_trajectory(SPEC, small_actor(SPEC))))


def test_the_learner_checks_outputs_and_states_of_a_method() -> None:
    with pytest.raises(UserError, match="method WrongUncertaintyShape"):
        learn(method=f"{__name__}:WrongUncertaintyShape")
    with pytest.raises(UserError, match="method StateChangesShape: update_state returns other structures, shapes or"):
        learn(method=f"{__name__}:StateChangesShape")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "WithoutCreate"}, "WithoutCreate does not define create"),
        ({"method": "WithoutCall"}, "WithoutCall does not define __call__"),
        ({"algorithm": "WithoutTargets"}, "WithoutTargets does not define compute_targets"),
        ({"algorithm": "WithoutLoss"}, "WithoutLoss does not define loss"),
        ({"encoder": "WithoutMake"}, "WithoutMake does not define make"),
    ],
)
def test_a_missing_definition_is_named(changes: dict[str, str], message: str) -> None:
    [(kind, name)] = changes.items()
    path = f"{__name__}:{name}"
    with pytest.raises(UserError, match=rf"^{kind} {__name__}\.{message}: every {kind} must"):
        learn(**({"network": NetworkConfig(encoder=path)} if kind == "encoder" else {kind: path}))


def test_targets_of_another_shape_are_refused() -> None:
    with pytest.raises(
        UserError, match=rf"algorithm TargetsPerObservation makes value targets of .* \({TIME - 1}, {BATCH}\)"
    ):
        learn(algorithm=f"{__name__}:TargetsPerObservation")
