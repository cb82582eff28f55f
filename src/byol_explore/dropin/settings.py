"""What can be set of a curiosity for anybody's agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from byol_explore.errors import UserError, unknown
from byol_explore.registries import ENCODERS
from byol_explore.rules import Positive, check
from byol_explore.settings.config import changed
from byol_explore.settings.parts import AUTO, CuriosityConfig, NetworkConfig, OptimizerConfig


@dataclass(frozen=True)
class Settings:
    """Networks, method and optimizer as in the trainer, and how much is learned from a rollout."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    curiosity: CuriosityConfig = field(default_factory=CuriosityConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    sequence_length: Positive[int] = 32
    """Transitions per sequence: rollouts are cut into such."""
    batch_size: Positive[int] = 512
    """Transitions per learner step, about."""
    epochs: Positive[int] = 1
    """How often all sequences of a rollout are learned from."""


def make_settings(given: Settings | Mapping[str, Any] | None) -> Settings:
    """Settings, or the usual ones with changes: {"curiosity": {"horizon": 8}, "epochs": 2}; a UserError if wrong."""
    if not isinstance(given, Settings | Mapping | None):
        raise UserError(f"settings is {given!r}: it must be a dict of settings, or None")
    settings = given if isinstance(given, Settings) else changed(Settings(), dict(given or {}))
    check(settings)
    encoder = settings.network.encoder
    if encoder != AUTO and not ENCODERS.knows(encoder):
        raise unknown("encoder", encoder, [AUTO, *ENCODERS.names(), "package.module:Name"])
    if settings.network.reads_reward:
        raise UserError("network.reads_reward is True: it must be False, for nobody gives rewards to a Curiosity")
    return settings
