"""The recurrent agent and its turns: observations and a memory in, actions and a memory out, and a step of the world.

Everybody who acts does it here: rollouts inside and outside jit, evaluations, films and the doctor.
"""

import time
from typing import NamedTuple, Protocol

import jax

from byol_explore.envs.base import EnvSpec
from byol_explore.envs.host import HostBatch
from byol_explore.networks.assembly import Actor
from byol_explore.ops import policies
from byol_explore.types import Action, Array, Memory, Policy, PyTree, TimeStep


def perceive(actor: Actor, memory: Memory, timestep: TimeStep) -> tuple[Memory, Policy]:
    """Take in a batch of observations; the memory still holds the action that led here."""
    arguments = (actor.normalizer(timestep.observation), memory.action, timestep.reward, timestep.is_first)
    core, embedding = actor.representation.step(memory.core, *arguments)
    curious = ()
    if actor.curious is not None:
        curious, embedding = actor.curious.step(memory.curious, *arguments)
    episode = actor.recall.step(memory.episode, embedding, arguments[0], timestep.is_first)
    policy = actor.policy(actor.representation.core.belief(core))
    return Memory(core, curious, memory.action, timestep.reward, episode), policy


def act(
    actor: Actor, memory: Memory, timestep: TimeStep, key: Array, *, greedy: bool = False
) -> tuple[Memory, Policy, Action]:
    """Perceive, then choose an action for each environment of the batch."""
    memory, policy = perceive(actor, memory, timestep)
    action = policies.mode(policy) if greedy else policies.sample(policy, key)
    return memory._replace(action=action), policy, action


class Situation(NamedTuple):
    """Where an agent and its environments inside jit stand."""

    envs: PyTree  # their states
    timestep: TimeStep  # [E, ...]
    memory: Memory  # [E, ...] before that time step


class Steppable(Protocol):
    """A batch of environments inside jit."""

    def step(self, state: PyTree, action: Action, /) -> tuple[PyTree, TimeStep]: ...


def turn(
    actor: Actor, envs: Steppable, at: Situation, key: Array, *, greedy: bool = False
) -> tuple[Situation, Policy, Action]:
    """The agent acts and its environments answer, inside jit."""
    memory, policy, action = act(actor, at.memory, at.timestep, key, greedy=greedy)
    states, timestep = envs.step(at.envs, action)
    return Situation(states, timestep, memory), policy, action


class Player:
    """Takes the same turns with environments outside jit, and remembers where everything stands."""

    timestep: TimeStep  # the environments' last answer, which the next turn may overwrite
    memory: Memory  # before that time step

    def __init__(self, batch: HostBatch, spec: EnvSpec, key: Array) -> None:
        self.batch, self._spec, self._key = batch, spec, key
        self.act_seconds = self.env_seconds = 0.0  # spent on choosing actions and on stepping environments

    def begin(self, actor: Actor) -> None:
        """First observations, and a memory of nothing."""
        self.timestep, self.memory = self.batch.reset(), actor.initial_memory(self._spec, self.batch.num_envs)

    def turn(self, actor: Actor, *, greedy: bool = False) -> tuple[Policy, Action]:
        """The agent acts, and the environments answer in `timestep`. The policy stays on its device."""
        began = time.perf_counter()
        self.memory, policy, action, self._key = _choose(actor, self.memory, self.timestep, self._key, greedy=greedy)
        action = jax.device_get(action)
        chosen = time.perf_counter()
        self.timestep = self.batch.step(action)
        self.act_seconds, self.env_seconds = (
            self.act_seconds + chosen - began,
            self.env_seconds + time.perf_counter() - chosen,
        )
        return policy, action


def _next(
    actor: Actor, memory: Memory, timestep: TimeStep, key: Array, *, greedy: bool
) -> tuple[Memory, Policy, Action, Array]:
    key, act_key = jax.random.split(key)
    return *act(actor, memory, timestep, act_key, greedy=greedy), key


_choose = jax.jit(_next, static_argnames="greedy")
