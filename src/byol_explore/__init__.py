"""BYOL-Explore: curiosity by bootstrapped latent prediction, in JAX."""

from byol_explore.config import Config
from byol_explore.envs.registry import env_families, make_env, make_envs
from byol_explore.errors import DivergenceError, UserError
from byol_explore.evaluation.episodes import evaluate
from byol_explore.presets import ABLATIONS, PRESETS, make_config
from byol_explore.train import Summary, load_config, train

__version__ = "0.1.0"

__all__ = [
    "ABLATIONS",
    "PRESETS",
    "Config",
    "DivergenceError",
    "Summary",
    "UserError",
    "env_families",
    "evaluate",
    "load_config",
    "make_config",
    "make_env",
    "make_envs",
    "train",
]
