"""What trains networks."""

import optax

from byol_explore.settings.parts import OptimizerConfig


def make_optimizer(settings: OptimizerConfig) -> optax.GradientTransformation:
    """Adam for the networks, behind a bound on the gradient if there is one."""
    clip = settings.max_gradient_norm
    return optax.chain(
        optax.clip_by_global_norm(clip) if clip > 0 else optax.identity(),
        optax.adam(settings.learning_rate, b1=settings.b1, b2=settings.b2),
    )
