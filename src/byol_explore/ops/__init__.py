"""The paper's equations as pure functions of arrays.

    arrays       masks, means per task, time and batch as one axis
    world_model  cosine loss, moving average of the target network, masks of predictions, uncertainty (section 3.2)
    rewards      normalisation and prioritisation of uncertainties, scale and mix of rewards (3.3, A.3, C)
    value        V-trace, GAE, PopArt (section 4.1, appendix C)
    policy       hybrid action distribution, losses of V-MPO and PPO (section 4.1, appendix C)

Functions are unbatched unless their shapes say otherwise; use `jax.vmap` for batches. Sequences are time-major. A
sequence of T observations has S = T - 1 transitions: transition t leads from o_t to o_{t+1}. Masks are True for entries
that count; `byol_explore.types` explains the axis letters.
"""

from byol_explore.ops import arrays, policy, rewards, value, world_model

__all__ = ["arrays", "policy", "rewards", "value", "world_model"]
