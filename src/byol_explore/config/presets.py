"""Presets and ablations: named settings, and named changes of them."""

import dataclasses
from typing import Any, NamedTuple

from byol_explore.config.config import Config, effective_settings, has_intrinsic_reward
from byol_explore.config.overrides import override
from byol_explore.config.sections import (
    AgentConfig,
    CuriosityConfig,
    LogConfig,
    NetworkConfig,
    OptimizerConfig,
    RuntimeConfig,
    VMPOConfig,
)
from byol_explore.envs.families import LEVELS, HardEightSettings
from byol_explore.envs.names import PREFIXES, EnvSettings, sections_for
from byol_explore.errors import UserError, unknown_name
from byol_explore.registry import METHODS, Registry


class Preset(NamedTuple):
    """Named settings to start from."""

    description: str
    config: Config


_ATARI = Config(
    env="atari:montezuma_revenge",
    steps=250_000_000,  # four frames each
    network=NetworkConfig(
        encoder="atari", embedding_size=512, belief_size=256, policy_hidden=(256,), value_hidden=(256,),
        predictor_hidden=(256,), action_embedding_size=32,
    ),
    curiosity=CuriosityConfig(horizon=8, mixing=0.1, loss_weight=5.0),
    agent=AgentConfig(gamma=0.999, entropy_weight=0.001),
    vmpo=VMPOConfig(
        init_temperature=0.5, epsilon_temperature=0.01, init_alpha_categorical=0.5, epsilon_categorical=0.005
    ),
    optimizer=OptimizerConfig(learning_rate=1e-4, dual_learning_rate=1e-4),
    runtime=RuntimeConfig(num_envs=384, batch_size=32, sequence_length=64, rounds_per_dispatch=1, num_actors=4),
    log=LogConfig(log_every=500_000, checkpoint_every=5_000_000, episode_window=100, evaluate_every=5_000_000),
)  # fmt: skip

_ATARI_SMALL = Config(
    env="atari:montezuma_revenge",
    steps=4_000_000,
    network=NetworkConfig(encoder="image", embedding_size=128, belief_size=128),
    curiosity=CuriosityConfig(normalizer_decay=0.95, loss_weight=5.0),
    agent=AgentConfig(gamma=0.997, entropy_weight=0.01),
    vmpo=VMPOConfig(epsilon_temperature=0.5, epsilon_categorical=0.002),  # the world model must learn faster
    optimizer=OptimizerConfig(learning_rate=1e-3),
    runtime=RuntimeConfig(num_envs=32, batch_size=4, sequence_length=33, rounds_per_dispatch=2),
    log=LogConfig(log_every=50_000, checkpoint_every=250_000, episode_window=100, evaluate_every=1_000_000),
)

# Appendix A.2 and C. Names of levels and entries are ours; the paper gives no number of environments and steps.
_HARD_EIGHT = Config(
    env=",".join(f"hard-eight:{task}" for task in LEVELS),
    task_sampling="random",
    steps=1_000_000_000,
    network=NetworkConfig(
        encoder="hard-eight", embedding_size=256, core="lstm", belief_size=512, policy_hidden=(512,),
        value_hidden=(512,), predictor_hidden=(128, 256, 512), normalize_vectors=False,
        core_inputs=("hand_force", "hand_is_holding", "hand_distance", "instruction"), core_input_size=20,
        use_prev_reward=True,
        core_mix_size=512, action_bins=(9, 9, 9, 9, 9, 9, 9, 11),  # 76 with two of the grip: the paper's, we guess
        action_embedding_size=76,  # as wide as their one-hots: nothing is lost
    ),
    curiosity=CuriosityConfig(horizon=10, mixing=0.01),
    agent=AgentConfig(gamma=0.99, extrinsic_rms_step_size=1e-5, intrinsic_rms_step_size=0.01),
    vmpo=VMPOConfig(
        init_temperature=1.0, epsilon_temperature=0.1, init_alpha_categorical=5.0, epsilon_categorical=0.0016,
        init_alpha_mean=1.0,
        epsilon_mean=0.001, init_alpha_covariance=1.0, epsilon_covariance=0.0001,
    ),
    optimizer=OptimizerConfig(learning_rate=1e-4, dual_learning_rate=1e-4, b1=0.0),
    runtime=RuntimeConfig(num_envs=384, batch_size=48, sequence_length=80, rounds_per_dispatch=1),
    log=LogConfig(log_every=500_000, checkpoint_every=5_000_000, episode_window=100, evaluate_every=5_000_000),
)  # fmt: skip

_HARD_EIGHT_SMALL = Config(
    env="hard-eight:wall-sensor",
    hard_eight=HardEightSettings(resolution="48x36", action_set="discrete"),
    steps=4_000_000,
    network=dataclasses.replace(
        _HARD_EIGHT.network, encoder="image", embedding_size=128, belief_size=128, policy_hidden=(128,),
        value_hidden=(128,), predictor_hidden=(128,), core_mix_size=None, action_bins=9, action_embedding_size=32,
        core_inputs=("instruction",),  # f(o) contains the hand, so that errors about it are rewarded
    ),
    curiosity=CuriosityConfig(normalizer_decay=0.95),
    vmpo=VMPOConfig(target_period=8),  # updates per rollout: the target policy is the one that acted
    optimizer=OptimizerConfig(learning_rate=1e-3),
    runtime=RuntimeConfig(num_envs=128, batch_size=16, sequence_length=41, rounds_per_dispatch=1),
    log=LogConfig(log_every=50_000, checkpoint_every=250_000),
)  # fmt: skip

_BUILT_IN = {
    "grid": Preset(
        "small network for grid worlds; rooms-6 is solved in minutes on two cores",
        Config(
            curiosity=CuriosityConfig(mixing=0.05),
            # A larger value loss disturbs the shared representation before there is a value to learn.
            agent=AgentConfig(value_weight=0.01, entropy_weight=0.01),
            vmpo=VMPOConfig(epsilon_temperature=0.5),  # rare successes weigh more: docs/results.md
            optimizer=OptimizerConfig(learning_rate=2e-3),
            stop_at_success_rate=0.95,
        ),
    ),
    "atari": Preset("the paper's Atari agent (K = 8, sequences of 64 as in its main text), for accelerators", _ATARI),
    "atari-big": Preset(
        "the paper's large Atari agent: one step ahead, sequences of 128",
        override(_ATARI, {"curiosity.horizon": 1, "runtime.sequence_length": 128}),
    ),
    "atari-400": Preset(
        "the paper's Atari agent with its 400 actors and an inference server, on a Ray cluster of 401 CPUs",
        override(
            _ATARI,
            {"runtime": {"actor_backend": "ray", "inference": "central", "num_actors": 400, "envs_per_actor": 1,
                         "batch_size": 40}},
        ),
    ),
    "hard-eight": Preset("the paper's DM-HARD-8 agent on the eight tasks of our own, for accelerators", _HARD_EIGHT),
    "dm-hard-eight-8": Preset(
        "the paper's DM-HARD-8 agent on the original, with its 6 devices that learn and 2 that act",
        override(
            _HARD_EIGHT,
            {"env": ",".join(f"dm-hard-eight:{task}" for task in LEVELS),
             "runtime": {"num_devices": 6, "num_actor_devices": 2, "num_actors": 2}},
        ),
    ),
    "hard-eight-small": Preset(
        "a light encoder, a small core, small pictures and moves instead of numbers: Hard-Eight on two CPU cores",
        _HARD_EIGHT_SMALL,
    ),
    "atari-small": Preset("a light encoder and a small core: Atari on two CPU cores", _ATARI_SMALL),
}  # fmt: skip


class _Presets(Registry[Preset]):
    def _check_part(self, name: str, part: Any) -> None:
        if not isinstance(part, Preset):
            raise UserError(f"preset {name!r} is no byol_explore.config.presets.Preset(description, config)")


PRESETS = _Presets("preset", {})
for _name, _built_in in _BUILT_IN.items():
    PRESETS.register(_name, _built_in)


class Ablation(NamedTuple):
    """A named change of the method."""

    description: str
    curiosity: dict[str, Any]  # changed settings of the section `curiosity`

    def apply(self, config: Config) -> Config:
        """Return the configuration with the change."""
        return override(config, {"curiosity": self.curiosity})


ABLATIONS = {
    "none": Ablation("the method without a change", {}),
    "fixed-targets": Ablation("alpha = 1: the target encoder is a random draw that never moves", {"target_decay": 1.0}),
    "horizon-1": Ablation("K = 1: predict one step ahead", {"horizon": 1}),
    "no-clipping": Ablation("intrinsic rewards are normalised but not clipped", {"prioritize": False}),
    "no-sharing": Ablation("curiosity has an encoder and a core of its own", {"share_representation": False}),
    "prioritized": Ablation("clipped rewards for rnd and icm too", {"prioritize": True}),
}


def make_config(preset: str = "grid", ablation: str = "none", method: str = "byol-explore", **changes: Any) -> Config:
    """Make a configuration.

    >>> make_config("atari-small", env="atari:alien", curiosity={"horizon": 8}).curiosity.horizon
    8

    Args:
      preset: named settings to start from (`PRESETS`).
      ablation: named change of the method (`ABLATIONS`).
      method: curiosity, by name or import path.
      changes: other fields; a dict changes some settings of a section. If `env` changes, settings that the preset has
        for environments of other families are reset.
    Returns:
      The configuration. Raises a UserError for an unknown name; `validate_config` checks the values.
    """
    start = PRESETS.get(preset).config
    METHODS.check(method)
    _check_ablation_name(ablation)
    if "env" in changes:
        start = _for_env(start, changes["env"])
    config = dataclasses.replace(start, preset=preset, ablation=ablation, method=method)
    config = override(ABLATIONS[ablation].apply(config), changes)
    _check_ablation(config)
    return config


def _for_env(config: Config, env: Any) -> Config:
    """Play another environment, with the settings of other families reset to their defaults."""
    if not isinstance(env, str) or env == config.env:
        return config
    config, usual = dataclasses.replace(config, env=env, env_kwargs=()), EnvSettings()
    unused = {name: getattr(usual, name) for name in PREFIXES if name not in sections_for(config.env_ids)}
    return dataclasses.replace(config, **unused)


def validate_config(config: Config) -> Config:
    """Check all values, also those that depend on the preset, the ablation and the method.

    Args:
      config: configuration to check.
    Returns:
      The same configuration. Raises a UserError that names the first wrong value and the accepted ones.
    """
    PRESETS.check(config.preset)
    _check_ablation_name(config.ablation)
    config.validate()
    _check_ablation(config)
    if ABLATIONS[config.ablation].apply(config) != config:
        raise UserError(
            f"ablation {config.ablation!r} is named but its settings are not those of the configuration: "
            "make the configuration with byol_explore.make_config, and change nothing that the ablation sets"
        )
    if config.regime == "intrinsic" and not has_intrinsic_reward(config):
        raise UserError(f"method {config.method!r} has no intrinsic reward: choose another method or regime extrinsic")
    return config


def _check_ablation_name(name: str) -> None:
    if name not in list(ABLATIONS):  # a value from a file may have no hash
        raise unknown_name("ablation", name, list(ABLATIONS))


def _check_ablation(config: Config) -> None:
    """Raise a UserError if the ablation does not change the method: reports would show its runs as a variant."""
    if config.ablation == "none":
        return
    plain = dataclasses.replace(PRESETS.get(config.preset).config, method=config.method, regime=config.regime)
    settings = effective_settings(plain)
    real = [name for name, each in ABLATIONS.items() if effective_settings(each.apply(plain)) != settings]
    if config.ablation not in real:
        others = f"choose from: {', '.join(real)}" if real else "it has no ablation"
        raise UserError(
            f"ablation {config.ablation!r} changes nothing in method {config.method!r} "
            f"(preset {config.preset!r}, regime {config.regime!r}); {others}"
        )
