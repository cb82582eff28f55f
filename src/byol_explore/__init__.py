"""BYOL-Explore: curiosity by bootstrapped latent prediction, in JAX.

Names are loaded when they are first used: importing the package starts neither JAX nor an environment.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from byol_explore.extras import needed_by

if TYPE_CHECKING:
    from byol_explore.doctor.checks import diagnose
    from byol_explore.dropin.curiosity import Curiosity
    from byol_explore.dropin.vector_env import CuriousVectorEnv
    from byol_explore.envs.registry import env_families, make_env, make_envs, register_env
    from byol_explore.errors import DivergenceError, UserError
    from byol_explore.playing.agent import Agent, load_agent
    from byol_explore.playing.episodes import evaluate
    from byol_explore.playing.films import film_run
    from byol_explore.report.build import build_report
    from byol_explore.report.files import write_report
    from byol_explore.run.directory import load_config
    from byol_explore.run.loop import Summary
    from byol_explore.run.trackers import Progress, Tracker
    from byol_explore.run.training import train
    from byol_explore.settings.config import Config
    from byol_explore.settings.presets import ABLATIONS, PRESETS
    from byol_explore.settings.presets import make_config as config
    from byol_explore.settings.trust import trust
    from byol_explore.study.file import read_study
    from byol_explore.study.runner import run_study

__version__ = "0.1.0"

__all__ = [
    "ABLATIONS",
    "PRESETS",
    "Agent",
    "Config",
    "Curiosity",
    "CuriousVectorEnv",
    "DivergenceError",
    "Progress",
    "Summary",
    "Tracker",
    "UserError",
    "build_report",
    "config",
    "diagnose",
    "env_families",
    "evaluate",
    "film_run",
    "load_agent",
    "load_config",
    "make_env",
    "make_envs",
    "read_study",
    "register_env",
    "run_study",
    "train",
    "trust",
    "write_report",
]

_HOMES = {
    "doctor.checks": ("diagnose",),
    "dropin.curiosity": ("Curiosity",),
    "dropin.vector_env": ("CuriousVectorEnv",),
    "envs.registry": ("env_families", "make_env", "make_envs", "register_env"),
    "errors": ("DivergenceError", "UserError"),
    "playing.agent": ("Agent", "load_agent"),
    "playing.episodes": ("evaluate",),
    "playing.films": ("film_run",),
    "report.build": ("build_report",),
    "report.files": ("write_report",),
    "run.directory": ("load_config",),
    "run.loop": ("Summary",),
    "run.trackers": ("Progress", "Tracker"),
    "run.training": ("train",),
    "settings.config": ("Config",),
    "settings.presets": ("ABLATIONS", "PRESETS", "config"),
    "settings.trust": ("trust",),
    "study.file": ("read_study",),
    "study.runner": ("run_study",),
}
_NAMES_AT_HOME = {"config": "make_config"}  # where the short name would hide too many variables


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            with needed_by(f"{__name__}.{name}"):
                return getattr(import_module(f"{__name__}.{module}"), _NAMES_AT_HOME.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
