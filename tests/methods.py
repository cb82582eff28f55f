"""Cases for any registered method: noise in its networks, and a batch whose episodes began before it."""

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
from byol_explore.curiosity.method import IntrinsicMethod, MethodOutput
from byol_explore.envs.interface import EnvSpec
from byol_explore.networks.representation import Representation, RepresentationOutput
from byol_explore.ops.rewards import RunningMoments
from byol_explore.registry import METHODS
from byol_explore.types import PyTree, Trajectory

EARLIER = 3  # observations of each episode before the batch


class Case(NamedTuple):
    spec: EnvSpec
    representation: Representation
    method: Any
    state: PyTree
    earlier: PyTree  # [EARLIER, B, ...] observations
    trajectory: Trajectory

    def look(self, trajectory: Trajectory | None = None) -> tuple[RepresentationOutput, MethodOutput]:
        """Return the method's output for the batch or another one, in NumPy."""
        given = self.trajectory if trajectory is None else trajectory
        return at(look(self.representation, self.method, self.state, given))


def explore(
    representation: Representation, method: IntrinsicMethod, state: PyTree, trajectory: Trajectory
) -> tuple[RepresentationOutput, MethodOutput]:
    view = representation.unroll(trajectory.sequence, trajectory.previous, trajectory.initial_state.policy_core)
    view = view._replace(episodic_memory=trajectory.initial_state.episodic_memory)
    return view, method(state, view, trajectory.sequence)


look = jit(explore)


@cache
def make_case(name: str, action: str = "hybrid", **curiosity: Any) -> Case:
    """Make a case on vectors; some observations recur in the same episode, and some in the next one."""
    spec, config, kind = make_spec("vector", action), small_config(name, **curiosity), METHODS.get(name)
    materials = materials_for(config, spec)
    recall = kind.episodic_memory(materials.embedding_size)
    actor = small_actor(spec, recall=recall)
    method, state = make(lambda key: _create(kind, materials, actor, key), seed=1)
    state = _fill_state(name, state)
    earlier = random_observation(np.random.default_rng(5), spec, (EARLIER, BATCH))
    memory = recall.init(BATCH)
    for t in range(EARLIER):
        memory = recall.insert(memory, actor.representation.encoder(earlier[t]), earlier[t])
    trajectory = make_trajectory(spec, actor)
    observation = np.array(trajectory.observation)
    observation[[2, 3, 6], 0] = observation[[1, 0, 5], 0]  # from the last episode, the same one, the one before
    observation[[3, 5], 2] = earlier[1, 2], observation[1, 2]
    remembered = trajectory.initial_state._replace(episodic_memory=memory)
    return Case(
        spec, actor.representation, method, state, earlier,
        trajectory._replace(observation=jnp.asarray(observation), initial_state=remembered),
    )  # fmt: skip


def _create(kind: type[IntrinsicMethod], materials: Any, actor: Any, key: jax.Array) -> tuple[IntrinsicMethod, PyTree]:
    method = kind.create(materials, key)
    return method, method.init_state(materials, actor.representation.encoder, key)


def _fill_state(name: str, state: Any) -> Any:
    """Fill the parts of a state that random arrays cannot fill, such as counts."""
    match name:
        case "counts":
            return state._replace(counts=jnp.arange(state.counts.size, dtype=jnp.float32) % 7)
        case "re3":  # most slots are empty
            points = np.random.default_rng(2).normal(size=state.embeddings.shape).astype(np.float32)
            return state._replace(embeddings=jnp.asarray(points), is_filled=jnp.arange(len(points)) % 100 == 0)
        case "ngu":
            statistics = [
                RunningMoments(jnp.asarray(x), jnp.asarray(y), jnp.asarray(3)) for x, y in ((0.05, 0.1), (0.1, 0.4))
            ]
            return state._replace(distances=statistics[0], errors=statistics[1])
    return state


def seen_before(case: Case, t: int, env: int) -> list[Any]:
    """Return the observations of the episode of transition t, up to o_t, oldest first."""
    first = np.asarray(case.trajectory.is_first)[: t + 1, env]
    began = int(np.flatnonzero(first)[-1]) if first.any() else None
    observation = np.asarray(case.trajectory.observation)
    before = [] if began is not None else [np.asarray(case.earlier)[i, env] for i in range(EARLIER)]
    return before + [observation[i, env] for i in range(began or 0, t + 1)]
