"""Sequences of several actors as one rollout."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from byol_explore.runtime.host_actor import Rollout


def merge(parts: Sequence[Rollout]) -> Rollout:
    """Their environments side by side, in arrays of its own: those of the parts may lie in memory that Ray shares.

    It is as old as the oldest of them.
    """

    def joined(trees: Sequence[Any], axis: int) -> Any:
        return jax.tree.map(lambda *xs: np.concatenate(xs, axis), *trees)

    trajectories = [part.trajectory for part in parts]
    timed = joined([each._replace(memory=None) for each in trajectories], 1)
    return Rollout(
        envs=np.concatenate([part.envs for part in parts]),
        trajectory=timed._replace(memory=joined([each.memory for each in trajectories], 0)),
        episodes=joined([part.episodes for part in parts], 1),
        places=np.concatenate([part.places for part in parts], 1),
        pulled_at=min(part.pulled_at for part in parts),
        env_seconds=sum(part.env_seconds for part in parts),
        act_seconds=sum(part.act_seconds for part in parts),
        remarks=tuple(dict.fromkeys(remark for part in parts for remark in part.remarks)),
        reached=joined([part.reached for part in parts], 1),
    )
