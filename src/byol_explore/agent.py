"""The stateless recurrent agent: an actor's networks and a memory in, actions and a memory out."""

from byol_explore.networks.assembly import Actor
from byol_explore.ops import policies
from byol_explore.types import Action, Array, Memory, Policy, TimeStep


def perceive(actor: Actor, memory: Memory, timestep: TimeStep) -> tuple[Memory, Policy]:
    """Take in a batch of observations; the memory still holds the action that led here."""
    arguments = (actor.normalizer(timestep.observation), memory.action, timestep.reward, timestep.is_first)
    core = actor.representation.step(memory.core, *arguments)
    curious = () if actor.curious is None else actor.curious.step(memory.curious, *arguments)
    policy = actor.policy(actor.representation.core.belief(core))
    return Memory(core, curious, memory.action, timestep.reward), policy


def act(
    actor: Actor, memory: Memory, timestep: TimeStep, key: Array, *, greedy: bool = False
) -> tuple[Memory, Policy, Action]:
    """Perceive, then choose an action for each environment of the batch."""
    memory, policy = perceive(actor, memory, timestep)
    action = policies.mode(policy) if greedy else policies.sample(policy, key)
    return memory._replace(action=action), policy, action
