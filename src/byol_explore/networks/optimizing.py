"""What trains networks."""

from typing import TypeVar

import jax
import optax

from byol_explore.settings.parts import OptimizerConfig
from byol_explore.types import Array, PyTree

_Networks = TypeVar("_Networks")


def make_optimizer(settings: OptimizerConfig) -> optax.GradientTransformation:
    """Adam's direction, behind a bound on the gradient if there is one; how far to go is not its business."""
    clip = settings.max_gradient_norm
    return optax.chain(
        optax.clip_by_global_norm(clip) if clip > 0 else optax.identity(),
        optax.scale_by_adam(b1=settings.b1, b2=settings.b2),
    )


def descend(networks: _Networks, direction: PyTree, rate: Array | float) -> _Networks:
    """Networks one step further down."""
    return optax.apply_updates(networks, jax.tree.map(lambda x: -rate * x, direction))  # pyright: ignore[reportReturnType, reportArgumentType]
