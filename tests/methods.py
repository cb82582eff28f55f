"""Any registered method with noise in its networks, before a batch in whose episodes something was seen already."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from builders import (
    BATCH,
    at,
    jit,
    make,
    make_spec,
    make_trajectory,
    materials_for,
    random_observation,
    small_actor,
    small_config,
)
from byol_explore.curiosity.base import Curiosity, CuriosityOutput
from byol_explore.envs.base import EnvSpec
from byol_explore.networks.assembly import Representation, View
from byol_explore.ops.moments import Moments
from byol_explore.registries import METHODS
from byol_explore.types import PyTree, Trajectory

EARLIER = 3  # observations of each episode before the batch


class Case(NamedTuple):
    spec: EnvSpec
    representation: Representation
    method: Any
    state: PyTree
    earlier: PyTree  # [EARLIER, B, ...] observations
    trajectory: Trajectory

    def look(self, trajectory: Trajectory | None = None) -> tuple[View, CuriosityOutput]:
        """What the method says of the batch or another one, in NumPy."""
        given = self.trajectory if trajectory is None else trajectory
        return at(look(self.representation, self.method, self.state, given))


def explore(
    representation: Representation, method: Curiosity, state: PyTree, trajectory: Trajectory
) -> tuple[View, CuriosityOutput]:
    view = representation.unroll(trajectory.sequence, trajectory.before, trajectory.memory.core)
    view = view._replace(episode=trajectory.memory.episode)
    return view, method(state, view, trajectory.sequence)


look = jit(explore)


@cache
def make_case(name: str, action: str = "hybrid", **curiosity: Any) -> Case:
    """On vectors; some observations are seen twice in an episode, and some in an episode and the next one."""
    spec, config, kind = make_spec("vector", action), small_config(name, **curiosity), METHODS.get(name)
    materials = materials_for(config, spec)
    recall = kind.recall(materials.embedding_size)
    actor = small_actor(spec, recall=recall)
    method, state = make(lambda key: _made(kind, materials, actor, key), seed=1)
    state = _experienced(name, state)
    earlier = random_observation(np.random.default_rng(5), spec, (EARLIER, BATCH))
    memory = recall.blank(BATCH)
    for t in range(EARLIER):
        memory = recall.after(memory, actor.representation.encoder(earlier[t]), earlier[t])
    trajectory = make_trajectory(spec, actor)
    observation = np.array(trajectory.observation)
    observation[[2, 3, 6], 0] = observation[[1, 0, 5], 0]  # of the former episode, the same, the one before last
    observation[[3, 5], 2] = earlier[1, 2], observation[1, 2]
    remembered = trajectory.memory._replace(episode=memory)
    return Case(
        spec, actor.representation, method, state, earlier,
        trajectory._replace(observation=jnp.asarray(observation), memory=remembered),
    )  # fmt: skip


def _made(kind: type[Curiosity], materials: Any, actor: Any, key: jax.Array) -> tuple[Curiosity, PyTree]:
    method = kind.make(materials, key)
    return method, method.init(materials, actor.representation.encoder, key)


def _experienced(name: str, state: Any) -> Any:
    """With something in what noise says nothing of."""
    match name:
        case "counts":
            return state._replace(counts=jnp.arange(state.counts.size, dtype=jnp.float32) % 7)
        case "re3":  # most of what looks like a point is none
            points = np.random.default_rng(2).normal(size=state.points.shape).astype(np.float32)
            return state._replace(points=jnp.asarray(points), there=jnp.arange(len(points)) % 100 == 0)
        case "ngu":
            statistics = [Moments(jnp.asarray(x), jnp.asarray(y), jnp.asarray(3)) for x, y in ((0.05, 0.1), (0.1, 0.4))]
            return state._replace(distances=statistics[0], errors=statistics[1])
    return state


def seen_before(case: Case, t: int, env: int) -> list[Any]:
    """All observations of the episode that transition t of an environment belongs to, up to o_t, oldest first."""
    first = np.asarray(case.trajectory.is_first)[: t + 1, env]
    began = int(np.flatnonzero(first)[-1]) if first.any() else None
    observation = np.asarray(case.trajectory.observation)
    before = [] if began is not None else [np.asarray(case.earlier)[i, env] for i in range(EARLIER)]
    return before + [observation[i, env] for i in range(began or 0, t + 1)]
