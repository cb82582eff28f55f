"""Named settings and named changes of them."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from byol_explore.envs.families import families_of
from byol_explore.envs.settings import merged, to_words
from byol_explore.envs.worlds.hard_eight.settings import TASKS
from byol_explore.errors import UserError, unknown
from byol_explore.registries import METHODS
from byol_explore.registry import Registry
from byol_explore.settings.config import Config, changed
from byol_explore.settings.parts import (
    AgentConfig,
    CuriosityConfig,
    LogConfig,
    NetworkConfig,
    OptimizerConfig,
    RuntimeConfig,
    VMPOConfig,
)


class Preset(NamedTuple):
    description: str
    config: Config


_ATARI = Config(
    env="atari:montezuma_revenge",
    steps=250_000_000,  # four frames each
    network=NetworkConfig(
        encoder="atari", embedding_size=512, belief_size=256, policy_hidden=(256,), value_hidden=(256,),
        predictor_hidden=(256,), action_size=32,
    ),
    curiosity=CuriosityConfig(horizon=8, mixing=0.1, loss_weight=5.0),
    agent=AgentConfig(gamma=0.999, entropy_weight=0.001),
    vmpo=VMPOConfig(temperature=0.5, temperature_epsilon=0.01, kl_categorical=0.5, kl_categorical_epsilon=0.005),
    optimizer=OptimizerConfig(learning_rate=1e-4, dual_learning_rate=1e-4),
    runtime=RuntimeConfig(num_envs=384, batch_size=32, sequence_length=64, rollouts_per_dispatch=1, actors=4),
    log=LogConfig(log_every=500_000, checkpoint_every=5_000_000, window=100, evaluate_every=5_000_000),
)  # fmt: skip

_ATARI_SMALL = Config(
    env="atari:montezuma_revenge",
    steps=4_000_000,
    network=NetworkConfig(encoder="image", embedding_size=128, belief_size=128),
    curiosity=CuriosityConfig(normalizer_decay=0.95, loss_weight=5.0),
    agent=AgentConfig(gamma=0.997, entropy_weight=0.01),
    vmpo=VMPOConfig(temperature_epsilon=0.5, kl_categorical_epsilon=0.002),  # the world model must learn faster
    optimizer=OptimizerConfig(learning_rate=1e-3),
    runtime=RuntimeConfig(num_envs=32, batch_size=4, sequence_length=33, rollouts_per_dispatch=2),
    log=LogConfig(log_every=50_000, checkpoint_every=250_000, window=100, evaluate_every=1_000_000),
)

# Appendix A.2 and C. Names of levels and entries are ours; how many environments and steps, the paper does not say.
_HARD_EIGHT = Config(
    env=",".join(f"hard-eight:{task}" for task in TASKS),
    tasks="drawn",
    steps=1_000_000_000,
    network=NetworkConfig(
        encoder="hard-eight", embedding_size=256, core="lstm", belief_size=512, policy_hidden=(512,),
        value_hidden=(512,), predictor_hidden=(128, 256, 512), normalize_vectors=False,
        core_reads=("hand_force", "hand_is_holding", "hand_distance", "instruction"), sense_size=20, reads_reward=True,
        mix_size=512, action_bins=(9, 9, 9, 9, 9, 9, 9, 11),  # with two of the grip the paper's 76, as our guess
        action_size=76,  # as wide as their one-hots, so that nothing of them is lost
    ),
    curiosity=CuriosityConfig(horizon=10, mixing=0.01),
    agent=AgentConfig(gamma=0.99, extrinsic_scale_step=1e-5, intrinsic_scale_step=0.01),
    vmpo=VMPOConfig(
        temperature=1.0, temperature_epsilon=0.1, kl_categorical=5.0, kl_categorical_epsilon=0.0016, kl_mean=1.0,
        kl_mean_epsilon=0.001, kl_covariance=1.0, kl_covariance_epsilon=0.0001,
    ),
    optimizer=OptimizerConfig(learning_rate=1e-4, dual_learning_rate=1e-4, b1=0.0),
    runtime=RuntimeConfig(num_envs=384, batch_size=48, sequence_length=80, rollouts_per_dispatch=1),
    log=LogConfig(log_every=500_000, checkpoint_every=5_000_000, window=100, evaluate_every=5_000_000),
)  # fmt: skip

_HARD_EIGHT_SMALL = Config(
    env="hard-eight:wall-sensor",
    env_settings=("resolution=48x36", "actions=discrete"),
    steps=4_000_000,
    network=dataclasses.replace(
        _HARD_EIGHT.network, encoder="image", embedding_size=128, belief_size=128, policy_hidden=(128,),
        value_hidden=(128,), predictor_hidden=(128,), mix_size=None, action_bins=9, action_size=32,
        core_reads=("instruction",),  # f(o) has the hand in it: what cannot be predicted of it is worth a reward
    ),
    curiosity=CuriosityConfig(normalizer_decay=0.95),
    vmpo=VMPOConfig(target_period=8),  # a rollout's updates: the policy that acted is the target, and not asked again
    optimizer=OptimizerConfig(learning_rate=1e-3),
    runtime=RuntimeConfig(num_envs=128, batch_size=16, sequence_length=41, rollouts_per_dispatch=1),
    log=LogConfig(log_every=50_000, checkpoint_every=250_000),
)  # fmt: skip

_BUILT_IN = {
    "grid": Preset(
        "small network for grid worlds; rooms-6 is solved in minutes on two cores",
        Config(
            curiosity=CuriosityConfig(mixing=0.05),
            vmpo=VMPOConfig(temperature_epsilon=0.5),  # rare successes weigh more: docs/results.md
            optimizer=OptimizerConfig(learning_rate=2e-3),
            stop_at_success=0.95,
        ),
    ),
    "atari": Preset("the paper's Atari agent (K = 8, sequences of 64 as in its main text), for accelerators", _ATARI),
    "atari-big": Preset(
        "the paper's large Atari agent: one step ahead, sequences of 128",
        dataclasses.replace(
            _ATARI,
            curiosity=dataclasses.replace(_ATARI.curiosity, horizon=1),
            runtime=dataclasses.replace(_ATARI.runtime, sequence_length=128),
        ),
    ),
    "atari-400": Preset(
        "the paper's Atari agent with its 400 actors and an inference server, on a Ray cluster of 401 CPUs",
        dataclasses.replace(
            _ATARI,
            runtime=dataclasses.replace(
                _ATARI.runtime, engine="ray", inference="central", actors=400, envs_per_actor=1, batch_size=40
            ),
        ),
    ),
    "hard-eight": Preset("the paper's DM-HARD-8 agent on the eight tasks of our own, for accelerators", _HARD_EIGHT),
    "dm-hard-eight-8": Preset(
        "the paper's DM-HARD-8 agent on the original, with its 6 devices that learn and 2 that act",
        dataclasses.replace(
            _HARD_EIGHT,
            env=",".join(f"dm-hard-eight:{task}" for task in TASKS),
            runtime=dataclasses.replace(_HARD_EIGHT.runtime, devices=6, actor_devices=2, actors=2),
        ),
    ),
    "hard-eight-small": Preset(
        "a light encoder, a small core, small pictures and moves instead of numbers: Hard-Eight on two CPU cores",
        _HARD_EIGHT_SMALL,
    ),
    "atari-small": Preset("a light encoder and a small core: Atari on two CPU cores", _ATARI_SMALL),
}


class _Presets(Registry[Preset]):
    def _check_part(self, name: str, part: Any) -> None:
        if not isinstance(part, Preset):
            raise UserError(f"preset {name!r} is no byol_explore.settings.presets.Preset(description, config)")


PRESETS = _Presets("preset", {})
for _name, _built_in in _BUILT_IN.items():
    PRESETS.add(_name, _built_in)


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


def make_config(preset: str = "grid", ablation: str = "none", method: str = "byol-explore", **changes: Any) -> Config:
    """A preset with an ablation applied, and then other changes: `env="rooms-4", curiosity={"horizon": 8}`.

    Settings of environments are joined to the preset's name by name; where the environment is of another family, the
    preset's are left out.
    """
    start = PRESETS.get(preset).config
    METHODS.check(method)
    if ablation not in list(ABLATIONS):
        raise unknown("ablation", ablation, list(ABLATIONS))
    config = dataclasses.replace(start, preset=preset, ablation=ablation, method=method)
    config = changed(ABLATIONS[ablation].apply(config), changes)
    words = start.env_settings
    if "env" in changes and not (isinstance(config.env, str) and _same_family(config, start)):
        words = ()
    config = dataclasses.replace(config, env_settings=merged(words, to_words(changes.get("env_settings", ()))))
    _check_ablation(config)
    return config


def _same_family(one: Config, other: Config) -> bool:
    return families_of(one.env_ids) == families_of(other.env_ids)


def checked(config: Config) -> Config:
    """Itself, or a UserError that names the first wrong value: of a field, or of what is chosen by name."""
    from byol_explore.settings.methods import is_paid

    PRESETS.check(config.preset)
    if config.ablation not in list(ABLATIONS):
        raise unknown("ablation", config.ablation, list(ABLATIONS))
    config.validate()
    _check_ablation(config)
    if ABLATIONS[config.ablation].apply(config) != config:
        raise UserError(
            f"ablation {config.ablation!r} is named but its settings are not those of the configuration: "
            "take it from byol_explore.config, and change nothing that it sets"
        )
    if config.regime == "intrinsic" and not is_paid(config):
        raise UserError(f"method {config.method!r} has no intrinsic reward: choose another method or regime extrinsic")
    return config


def _check_ablation(config: Config) -> None:
    """A UserError if the ablation leaves the method as it is: its runs would be taken for something else."""
    if config.ablation == "none":
        return
    from byol_explore.settings.methods import method_settings

    plain = dataclasses.replace(PRESETS.get(config.preset).config, method=config.method, regime=config.regime)
    settings = method_settings(plain)
    real = [name for name, each in ABLATIONS.items() if method_settings(each.apply(plain)) != settings]
    if config.ablation not in real:
        others = f"choose from: {', '.join(real)}" if real else "it has no ablation"
        raise UserError(
            f"ablation {config.ablation!r} changes nothing in method {config.method!r} "
            f"(preset {config.preset!r}, regime {config.regime!r}); {others}"
        )
