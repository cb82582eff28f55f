"""Named settings and named changes of them."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from byol_explore.config import Config, CuriosityConfig
from byol_explore.errors import UserError, unknown


class Preset(NamedTuple):
    description: str
    config: Config


PRESETS = {
    "grid": Preset(
        "small network for grid worlds; rooms-6 is solved in minutes on two cores",
        Config(curiosity=CuriosityConfig(mixing=0.05), stop_at_success=0.95),
    ),
}


class Ablation(NamedTuple):
    description: str
    apply: Callable[[Config], Config]


def _curiosity(**changes: object) -> Callable[[Config], Config]:
    def apply(config: Config) -> Config:
        return dataclasses.replace(config, curiosity=dataclasses.replace(config.curiosity, **changes))  # pyright: ignore[reportArgumentType]

    return apply


ABLATIONS = {
    "none": Ablation("the method as it is", lambda config: config),
    "fixed-targets": Ablation("alpha = 1: the target encoder is a random draw that never moves",
                              _curiosity(target_decay=1.0)),
    "horizon-1": Ablation("K = 1: predict one step ahead", _curiosity(horizon=1)),
    "no-clipping": Ablation("intrinsic rewards are normalised but not clipped", _curiosity(prioritize=False)),
    "no-sharing": Ablation("curiosity has an encoder and a core of its own", _curiosity(share=False)),
    "prioritized": Ablation("clipped rewards for rnd and icm too", _curiosity(prioritize=True)),
}  # fmt: skip

_ONLY_BYOL = ("fixed-targets", "horizon-1")


def make_config(preset: str = "grid", ablation: str = "none", method: str = "byol-explore") -> Config:
    """A preset with an ablation applied."""
    if preset not in PRESETS:
        raise unknown("preset", preset, list(PRESETS))
    if ablation not in ABLATIONS:
        raise unknown("ablation", ablation, list(ABLATIONS))
    if ablation in _ONLY_BYOL and method != "byol-explore":
        raise UserError(f"ablation {ablation!r} changes byol-explore; method {method!r} has nothing to change")
    if ablation != "none" and method == "none":
        raise UserError(f"ablation {ablation!r} needs a curiosity; method 'none' has none")
    config = dataclasses.replace(PRESETS[preset].config, preset=preset, ablation=ablation, method=method)
    return ABLATIONS[ablation].apply(config)
