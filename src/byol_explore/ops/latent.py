"""Distances in latent space and the target network's moving average (section 3.2 ii, iii)."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Tree = TypeVar("Tree")


def l2_normalize(x: Float[Array, "*batch N"], epsilon: float = 1e-8) -> Float[Array, "*batch N"]:
    """X / |x|, with a gradient that stays finite at zero."""
    return x * jax.lax.rsqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True) + epsilon**2)


def cosine_distance(prediction: Float[Array, "*batch N"], target: Float[Array, "*batch N"]) -> Float[Array, "*batch"]:
    """|g/|g| - sg(f/|f|)|^2, in [0, 4]; no gradient reaches the target."""
    difference = l2_normalize(prediction) - jax.lax.stop_gradient(l2_normalize(target))
    return jnp.sum(jnp.square(difference), axis=-1)


def squared_distance(prediction: Float[Array, "*batch N"], target: Float[Array, "*batch N"]) -> Float[Array, "*batch"]:
    """|g - sg(f)|^2, the error of RND and ICM (appendix B)."""
    return jnp.sum(jnp.square(prediction - jax.lax.stop_gradient(target)), axis=-1)


def ema(old: Tree, new: Tree, decay: float) -> Tree:
    """Decay * old + (1 - decay) * new on every array: phi <- alpha phi + (1 - alpha) theta."""
    return jax.tree.map(lambda o, n: decay * o + (1.0 - decay) * n, old, new)
