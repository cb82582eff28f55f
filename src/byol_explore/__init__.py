"""BYOL-Explore: curiosity by bootstrapped latent prediction, in JAX.

Names are loaded when they are first used: importing the package starts neither JAX nor an environment.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from byol_explore.config import Config
    from byol_explore.doctor.checks import diagnose
    from byol_explore.envs.registry import env_families, make_env, make_envs, register_env
    from byol_explore.errors import DivergenceError, UserError
    from byol_explore.evaluation.episodes import evaluate
    from byol_explore.evaluation.films import film_run
    from byol_explore.playing import Agent, load_agent
    from byol_explore.presets import ABLATIONS, PRESETS, make_config
    from byol_explore.report.build import build_report
    from byol_explore.report.files import write_report
    from byol_explore.run_directory import load_config
    from byol_explore.study.file import read_study
    from byol_explore.study.runner import run_study
    from byol_explore.trackers import Progress, Tracker
    from byol_explore.training import Summary, train
    from byol_explore.trust import trust

__version__ = "0.1.0"

__all__ = [
    "ABLATIONS",
    "PRESETS",
    "Agent",
    "Config",
    "DivergenceError",
    "Progress",
    "Summary",
    "Tracker",
    "UserError",
    "build_report",
    "diagnose",
    "env_families",
    "evaluate",
    "film_run",
    "load_agent",
    "load_config",
    "make_config",
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
    "config": ("Config",),
    "doctor.checks": ("diagnose",),
    "envs.registry": ("env_families", "make_env", "make_envs", "register_env"),
    "errors": ("DivergenceError", "UserError"),
    "evaluation.episodes": ("evaluate",),
    "evaluation.films": ("film_run",),
    "playing": ("Agent", "load_agent"),
    "presets": ("ABLATIONS", "PRESETS", "make_config"),
    "report.build": ("build_report",),
    "report.files": ("write_report",),
    "run_directory": ("load_config",),
    "study.file": ("read_study",),
    "study.runner": ("run_study",),
    "trackers": ("Progress", "Tracker"),
    "training": ("Summary", "train"),
    "trust": ("trust",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
