"""BYOL-Explore: curiosity by bootstrapped latent prediction, in JAX.

Names are loaded when they are first used: importing the package starts neither JAX nor an environment.
"""
# ruff: noqa: F401

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors
    from byol_explore import dropin, integrations, ops, spaces
    from byol_explore.agent.algorithm import Algorithm
    from byol_explore.config.config import Config
    from byol_explore.config.presets import ABLATIONS, PRESETS, make_config
    from byol_explore.curiosity.bonus import Bonus, BonusConfig, BonusOutput, BonusState
    from byol_explore.curiosity.inputs import Transition
    from byol_explore.curiosity.method import IntrinsicMethod, MethodOutput
    from byol_explore.doctor.diagnose import diagnose
    from byol_explore.doctor.evidence import Finding
    from byol_explore.dropin.curiosity import Curiosity
    from byol_explore.dropin.vector_env import CuriousVectorEnv
    from byol_explore.envs.interface import EnvSpec, HostEnvironment, JitEnvironment
    from byol_explore.envs.registry import list_environments, make_env, make_envs, register_env
    from byol_explore.errors import DivergenceError, EnvironmentFailure, UserError
    from byol_explore.evaluation.films import film
    from byol_explore.evaluation.trained_agent import TrainedAgent, evaluate, load_agent
    from byol_explore.networks.encoders import ObservationEncoder
    from byol_explore.networks.episodic_memory import EpisodicMemory
    from byol_explore.registry import trust_external_code
    from byol_explore.report.build import build_report, write_report
    from byol_explore.runtime.anakin import make_train
    from byol_explore.storage.run_directory import load_config
    from byol_explore.study.file import read_study
    from byol_explore.study.runner import run_study
    from byol_explore.training.callbacks import Callback, Progress
    from byol_explore.training.loop import RunSummary
    from byol_explore.training.train import train
    from byol_explore.types import Action, TimeStep

__version__ = "0.1.0"

# On some CPUs XLA prints errors about every program that it takes from the compilation cache, although the program
# runs. XLA reads this when JAX is imported: a program that imports JAX first sees these lines. Real failures raise as
# well, and fatal errors are still printed.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_HOMES = {  # the same names by module, for the interpreter
    "agent.algorithm": ("Algorithm",),
    "config.config": ("Config",),
    "config.presets": ("ABLATIONS", "PRESETS", "make_config"),
    "curiosity.bonus": ("Bonus", "BonusConfig", "BonusOutput", "BonusState"),
    "curiosity.inputs": ("Transition",),
    "curiosity.method": ("IntrinsicMethod", "MethodOutput"),
    "doctor.diagnose": ("diagnose",),
    "doctor.evidence": ("Finding",),
    "dropin.curiosity": ("Curiosity",),
    "dropin.vector_env": ("CuriousVectorEnv",),
    "envs.interface": ("EnvSpec", "HostEnvironment", "JitEnvironment"),
    "envs.registry": ("list_environments", "make_env", "make_envs", "register_env"),
    "errors": ("DivergenceError", "EnvironmentFailure", "UserError"),
    "evaluation.films": ("film",),
    "evaluation.trained_agent": ("TrainedAgent", "evaluate", "load_agent"),
    "networks.encoders": ("ObservationEncoder",),
    "networks.episodic_memory": ("EpisodicMemory",),
    "registry": ("trust_external_code",),
    "report.build": ("build_report", "write_report"),
    "runtime.anakin": ("make_train",),
    "storage.run_directory": ("load_config",),
    "study.file": ("read_study",),
    "study.runner": ("run_study",),
    "training.callbacks": ("Callback", "Progress"),
    "training.loop": ("RunSummary",),
    "training.train": ("train",),
    "types": ("Action", "TimeStep"),
}
_MODULES = ("dropin", "integrations", "ops", "spaces")

__all__ = sorted([*_MODULES, *(name for names in _HOMES.values() for name in names)])  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    for module, names in _HOMES.items():
        if name in names:
            # Here, because this module is imported before the entry point can handle Ctrl-C.
            from byol_explore.utils.packages import require_extra

            with require_extra(f"{__name__}.{name}"):
                return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
