"""Acting: one forward pass of the policy, the choice of an action, and one step of the environments.

Rollouts inside and outside jit, evaluation, films and the doctor all act through `select_action`. The recurrent state
is an argument and a result, so the caller decides where it lives.
"""

import time
from functools import partial
from typing import NamedTuple, Protocol

import jax

from byol_explore.envs.interface import EnvSpec, HostVectorEnv
from byol_explore.networks.representation import Actor
from byol_explore.ops import policy as policy_ops
from byol_explore.types import Action, Array, Policy, PyTree, RecurrentState, TimeStep


def policy_forward(actor: Actor, recurrent_state: RecurrentState, timestep: TimeStep) -> tuple[RecurrentState, Policy]:
    """Update the recurrent state with o_t and return the policy pi(. | b_t).

    Args:
      actor: parameters of the acting policy.
      recurrent_state: [E, ...] state before o_t; `recurrent_state.prev_action` is a_{t-1}.
      timestep: [E, ...] o_t and the reward of the transition that leads to it.
    Returns:
      State [E, ...] after o_t, in which `prev_action` is still a_{t-1}, and the policy [E, ...].
    """
    arguments = (
        actor.obs_normalizer(timestep.observation),
        recurrent_state.prev_action,
        timestep.reward,
        timestep.is_first,
    )
    policy_core, embedding = actor.representation.step(recurrent_state.policy_core, *arguments)
    curiosity_core = ()
    if actor.curiosity_representation is not None:
        curiosity_core, embedding = actor.curiosity_representation.step(recurrent_state.curiosity_core, *arguments)
    episode = actor.episodic_memory.step(
        recurrent_state.episodic_memory, embedding, timestep.observation, timestep.is_first
    )
    policy = actor.policy_head(actor.representation.core.belief(policy_core))
    return RecurrentState(policy_core, curiosity_core, recurrent_state.prev_action, timestep.reward, episode), policy


def select_action(
    actor: Actor, recurrent_state: RecurrentState, timestep: TimeStep, key: Array, *, greedy: bool = False
) -> tuple[RecurrentState, Policy, Action]:
    """Run the policy on o_t and choose a_t.

    Args:
      actor: parameters of the acting policy.
      recurrent_state: [E, ...] state before o_t.
      timestep: [E, ...] o_t and the reward of the transition that leads to it.
      key: one key [] for the batch, or a key per environment [E].
      greedy: take the most likely action instead of a sample.
    Returns:
      State [E, ...] before o_{t+1}, the policy [E, ...] and the action [E, ...].
    """
    recurrent_state, policy = policy_forward(actor, recurrent_state, timestep)
    action = policy_ops.greedy_action(policy) if greedy else policy_ops.sample_action(policy, key)
    return recurrent_state._replace(prev_action=action), policy, action


def split_key(key: Array) -> tuple[Array, Array]:
    """Split one key [], or the key of each environment [E], into the next one and one to use now."""
    pairs = jax.vmap(jax.random.split)(key) if key.ndim else jax.random.split(key)
    return pairs[..., 0], pairs[..., 1]


class RolloutCarry(NamedTuple):
    """Environments inside jit and the agent's state between two steps."""

    env_state: PyTree  # [E, ...]
    timestep: TimeStep  # [E, ...]
    recurrent_state: RecurrentState  # [E, ...] before that time step


class SteppableEnv(Protocol):
    """A batch of environments inside jit."""

    def step(self, state: PyTree, action: Action, /) -> tuple[PyTree, TimeStep]: ...


def act_and_step(
    actor: Actor, envs: SteppableEnv, carry: RolloutCarry, key: Array, *, greedy: bool = False
) -> tuple[RolloutCarry, Policy, Action]:
    """Choose actions and step the environments, inside jit.

    Args:
      actor: parameters of the acting policy.
      envs: the environments.
      carry: [E, ...] their states and the agent's.
      key: one key [] for the batch, or a key per environment [E].
      greedy: take the most likely action instead of a sample.
    Returns:
      The carry after the step, and the policy [E, ...] and action [E, ...] that led there.
    """
    recurrent_state, policy, action = select_action(actor, carry.recurrent_state, carry.timestep, key, greedy=greedy)
    env_state, timestep = envs.step(carry.env_state, action)
    return RolloutCarry(env_state, timestep, recurrent_state), policy, action


class HostAgentLoop:
    """Acts in environments outside jit; keeps their last time step and the agent's recurrent state.

    Policies stay on their device: nothing but actions is transferred in each step.

    Args:
      batch: environments; the caller closes them.
      spec: their spaces.
      key: one key [], or a key per environment [E].
    """

    timestep: TimeStep  # [E, ...] of the last step; the next step may overwrite its arrays
    recurrent_state: RecurrentState  # [E, ...] before that time step
    act_seconds: float  # time of the last step for choosing actions
    env_seconds: float  # time of the last step for stepping the environments

    def __init__(self, batch: HostVectorEnv, spec: EnvSpec, key: Array) -> None:
        self.batch, self._spec, self._key = batch, spec, key

    def reset(self, actor: Actor) -> None:
        """Begin new episodes with an empty recurrent state."""
        self.timestep, self.recurrent_state = self.batch.reset(), actor.initial_state(self._spec, self.batch.num_envs)

    def step(self, actor: Actor, *, greedy: bool = False) -> tuple[Policy, Action]:
        """Choose actions and step the environments. Returns the policy [E, ...] and the action [E, ...]."""
        began = time.perf_counter()
        self.recurrent_state, policy, action, self._key = _split_and_select(
            actor, self.recurrent_state, self.timestep, self._key, greedy=greedy
        )
        action = jax.device_get(action)
        acted = time.perf_counter()
        self.timestep = self.batch.step(action)
        self.act_seconds, self.env_seconds = acted - began, time.perf_counter() - acted
        return policy, action


@partial(jax.jit, static_argnames="greedy")
def _split_and_select(
    actor: Actor, recurrent_state: RecurrentState, timestep: TimeStep, key: Array, *, greedy: bool
) -> tuple[RecurrentState, Policy, Action, Array]:
    key, act_key = split_key(key)
    return *select_action(actor, recurrent_state, timestep, act_key, greedy=greedy), key
