"""Value targets and advantages (section 4.1, appendix C)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def vtrace_targets(
    value: Float[Array, " T"],
    reward: Float[Array, " S"],
    discount: Float[Array, " S"],
    valid: Bool[Array, " S"],
) -> Float[Array, " S"]:
    """V-trace with rho = c = 1: the return to the end of the sequence, bootstrapped from its last value.

        v_t = r_t + discount_t v_{t+1},   v_{T-1} = V(o_{T-1})

    At an invalid (dummy) transition the target is the value itself, so a truncated episode bootstraps
    from the value of its true last observation and nothing flows in from the next episode.
    """

    def backward(carry: Array, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
        reward_t, discount_t, value_t, valid_t = inputs
        target = jnp.where(valid_t, reward_t + discount_t * carry, value_t)
        return target, target

    _, targets = jax.lax.scan(backward, value[-1], (reward, discount, value[:-1], valid), reverse=True)
    return targets


def generalized_advantage(
    value: Float[Array, " T"],
    reward: Float[Array, " S"],
    discount: Float[Array, " S"],
    valid: Bool[Array, " S"],
    decay: float,
) -> Float[Array, " S"]:
    """Generalised advantage estimation (Schulman et al., 2016), lambda being the decay.

        delta_t = r_t + discount_t V(o_{t+1}) - V(o_t),   A_t = delta_t + discount_t lambda A_{t+1}

    An invalid (dummy) transition has no advantage and passes none on: a truncated episode bootstraps from the value of
    its true last observation.
    """

    def backward(carry: Array, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
        error, discount_t, valid_t = inputs
        advantage = jnp.where(valid_t, error + discount_t * decay * carry, 0.0)
        return advantage, advantage

    errors = reward + discount * value[1:] - value[:-1]
    _, advantages = jax.lax.scan(backward, jnp.zeros(()), (errors, discount, valid), reverse=True)
    return advantages
