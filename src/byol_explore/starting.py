"""How a learner's networks begin: built from the configuration, and centred on what was seen before the first step."""

import jax

from byol_explore.curiosity.base import Materials
from byol_explore.envs.base import EnvSpec
from byol_explore.networks.assembly import Networks, make_actor
from byol_explore.networks.centering import with_centered_encoders
from byol_explore.networks.choosing import make_encoder
from byol_explore.networks.layers import MLP
from byol_explore.registries import ALGORITHMS, METHODS
from byol_explore.settings.config import Config
from byol_explore.settings.methods import embedding_size, has_own_representation
from byol_explore.types import Array, PyTree


def start_networks(
    config: Config, spec: EnvSpec, tasks: int, key: Array, observation: PyTree = None
) -> tuple[Networks, PyTree]:
    """The online networks, and the state of their curiosity.

    All encoders are centred on the observations [n, ...] if there are any (`networks/centering.py`), and the statistics
    of vectors begin with them. Encoders that are made later (a fixed target, RND's) are centred on the same ones.
    """
    network, method, size = config.network, METHODS.get(config.method), embedding_size(config)
    actor_key, value_key, curiosity_key, state_key = jax.random.split(key, 4)
    actor = make_actor(
        network, spec, actor_key, apart=has_own_representation(config), apart_size=size, recall=method.recall(size)
    )  # fmt: skip
    if observation is not None:
        actor = actor.having_seen(observation)
        observation = actor.normalizer(observation)

    def start(tree: PyTree) -> PyTree:
        if observation is None:
            return tree
        return with_centered_encoders(tree, observation, scaled=method.compares_directions)

    actor = start(actor)
    materials = Materials(
        spec.observation, spec.action, network, config.curiosity, size,
        lambda key: start(make_encoder(network, spec, key, size)),
        ALGORITHMS.get(config.algorithm)(config, spec.action).epochs(),
    )  # fmt: skip
    curiosity = method.make(materials, curiosity_key)
    value = MLP(network.belief_size, network.value_hidden, tasks, value_key)
    return Networks(actor, value, curiosity), curiosity.init(materials, actor.curious_encoder, state_key)
