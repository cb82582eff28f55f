"""What a configuration makes of its method."""

from byol_explore.registries import METHODS
from byol_explore.settings.config import Config


def prioritizes(config: Config) -> bool:
    """Whether intrinsic rewards are clipped: as set, or as the paper has it for the method."""
    setting = config.curiosity.prioritize
    return METHODS.get(config.method).prioritizes if setting is None else setting


def is_paid(config: Config) -> bool:
    """Whether curiosity has a part in the reward at all."""
    return METHODS.get(config.method).is_curious and config.regime != "extrinsic"


def has_own_representation(config: Config) -> bool:
    """Whether a second encoder and core are trained by the curiosity alone."""
    method = METHODS.get(config.method)
    return method.is_curious and method.reads_representation and not config.curiosity.share


def embedding_size(config: Config) -> int:
    """Width of the encoder that the curiosity reads, or has for itself."""
    own = config.curiosity.embedding_size
    may_differ = not METHODS.get(config.method).reads_representation or not config.curiosity.share
    return own if own is not None and may_differ else config.network.embedding_size


def method_settings(config: Config) -> dict[str, object]:
    """The settings of curiosity that the method looks at, with the values that it works with."""
    values = {name: getattr(config.curiosity, name) for name in METHODS.get(config.method).reads}
    if "prioritize" in values:
        values["prioritize"] = prioritizes(config)
    if config.regime == "extrinsic":
        values.pop("prioritize", None)
    return values
