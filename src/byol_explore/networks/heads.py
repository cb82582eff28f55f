"""Policy head; the value head is a plain MLP whose last layer PopArt rescales."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from byol_explore.networks.layers import MLP
from byol_explore.spaces import ActionSpec
from byol_explore.types import Policy


class PolicyHead(eqx.Module):
    """One hidden layer shared by all parts of a hybrid action; each part is a linear projection of it."""

    mlp: MLP
    spec: ActionSpec = eqx.field(static=True)
    min_stddev: float = eqx.field(static=True)

    def __init__(
        self, inputs: int, hidden: tuple[int, ...], spec: ActionSpec, key: Array, *,
        scale: float = 1.0, min_stddev: float = 1e-3,
    ) -> None:  # fmt: skip
        outputs = sum(spec.discrete) + 2 * spec.continuous
        self.mlp = MLP(inputs, hidden, outputs, key, scale=scale)
        self.spec, self.min_stddev = spec, min_stddev

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Policy:
        y = self.mlp(x)
        logits, start = [], 0
        for categories in self.spec.discrete:
            logits.append(y[..., start : start + categories])
            start += categories
        mean, spread = jnp.split(y[..., start:], 2, axis=-1)
        # softplus(0.54) = 1: a fresh policy spans the bounds.
        return Policy(tuple(logits), mean, jax.nn.softplus(spread + 0.54) + self.min_stddev)
