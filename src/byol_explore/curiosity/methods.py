"""A curiosity method by its name."""

import jax

from byol_explore.config import METHODS, READ_BY, Config
from byol_explore.curiosity.base import Curiosity
from byol_explore.curiosity.byol_explore import BYOLExplore
from byol_explore.curiosity.icm import ICM
from byol_explore.curiosity.none import NoCuriosity
from byol_explore.curiosity.rnd import RND
from byol_explore.envs.base import EnvSpec
from byol_explore.errors import unknown
from byol_explore.networks.assembly import make_encoder
from byol_explore.types import Array


def embedding_size(config: Config) -> int:
    """Width of the encoder that the curiosity reads or, for RND, has."""
    own = config.curiosity.embedding_size
    may_differ = config.method == "rnd" or not config.curiosity.share
    return own if own is not None and may_differ else config.network.embedding_size


def has_own_representation(config: Config) -> bool:
    """Whether a second encoder and core are trained by the curiosity alone."""
    return not config.curiosity.share and "share" in READ_BY[config.method]


def make_curiosity(config: Config, spec: EnvSpec, key: Array) -> Curiosity:
    size = embedding_size(config)
    match config.method:
        case "byol-explore":
            return BYOLExplore(config.network, config.curiosity, spec.action, size, key)
        case "rnd":
            return RND(make_encoder(config.network, spec, jax.random.split(key)[0], size))
        case "icm":
            return ICM(config.network, spec.action, size, key)
        case "none":
            return NoCuriosity()
    raise unknown("method", config.method, list(METHODS))
