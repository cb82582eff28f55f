"""Curiosity for agents of other libraries; each module needs an extra of its own and is loaded on first use."""

from importlib import import_module
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name in ("sb3", "torchrl"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
