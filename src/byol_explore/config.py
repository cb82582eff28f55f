"""The whole configuration: frozen dataclasses that are at once config file, command line and its help."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from byol_explore.envs.atari_settings import RULES, AtariSettings
from byol_explore.errors import UserError, unknown

METHODS = ("byol-explore", "rnd", "icm", "none")
REGIMES = ("mixed", "intrinsic", "extrinsic")
READ_BY = {
    "byol-explore": ("horizon", "target_decay", "share", "prioritize"),
    "rnd": ("prioritize",),
    "icm": ("share", "prioritize"),
    "none": (),
}  # the settings of curiosity that ablations change, as far as a method looks at them
MAX_SIZE = 1_000_000


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the networks."""

    encoder: str = "auto"
    """Observation encoder: grid, vector, image (light), atari (the paper's), hard-eight, dict; auto is what fits."""
    encoder_hidden: tuple[int, ...] = (128,)
    """Hidden layers of the grid and vector encoders, and of the vectors in a dict."""
    center: bool = True
    """Start with biases (for images also a mean image) that make every layer of an encoder zero on average over the
    observations of some random steps. Without it embeddings start nearly parallel, and may collapse into one point."""
    cell_size: int = 8
    """Numbers per cell that the grid encoder looks up."""
    embedding_size: int = 64
    """N, the size of f(o)."""
    core: str = "gru"
    """Recurrent core: gru or lstm."""
    belief_size: int = 64
    """M, the size of b."""
    policy_hidden: tuple[int, ...] = (128,)
    """Hidden layers of the policy head."""
    value_hidden: tuple[int, ...] = (128,)
    """Hidden layers of the value head."""
    predictor_hidden: tuple[int, ...] = (128,)
    """Hidden layers of the curiosity's predictor."""
    action_size: int = 32
    """Size of an action's embedding."""
    action_bins: int = 9
    """Bins per continuous action dimension where an action is an input."""


@dataclass(frozen=True)
class CuriosityConfig:
    """The world model, its uncertainty and the reward made from it."""

    horizon: int = 5
    """K, how many steps ahead the world model predicts."""
    target_decay: float = 0.99
    """alpha of the target network's moving average; 1 is the fixed-targets ablation."""
    share: bool = True
    """Whether curiosity and policy share encoder and closed-loop core."""
    prioritize: bool | None = None
    """Clip rewards below their running mean; None is the paper's choice: byol-explore yes, rnd and icm no."""
    mixing: float = 0.1
    """lambda, the weight of the intrinsic reward in the mixed regime."""
    loss_weight: float = 1.0
    """Weight of the curiosity's loss beside the agent's."""
    normalizer_decay: float = 0.99
    """Decay of the intrinsic reward's running statistics."""
    normalize_per_task: bool = True
    """Whether every task has statistics of its own there, so that one with small errors is paid too; else all share."""
    embedding_size: int | None = None
    """Width of an encoder of the curiosity's own (rnd, or without sharing); None is the policy's width."""


@dataclass(frozen=True)
class AgentConfig:
    """The reinforcement learner: V-MPO, V-trace, PopArt."""

    gamma: float = 0.99
    """Discount factor."""
    top_fraction: float = 0.5
    """Share of the samples, best advantages first, that the policy learns from."""
    target_period: int = 10
    """Learner steps between refreshes of the target policy, which acts."""
    temperature: float = 0.1
    """eta, V-MPO's temperature at the start."""
    temperature_epsilon: float = 0.1
    """eps_eta, its constraint."""
    kl_categorical: float = 0.1
    """alpha of discrete actions at the start."""
    kl_categorical_epsilon: float = 0.01
    """Its KL constraint."""
    kl_mean: float = 1.0
    """alpha of Gaussian means at the start."""
    kl_mean_epsilon: float = 0.001
    """Its KL constraint, per dimension."""
    kl_covariance: float = 1.0
    """alpha of Gaussian variances at the start."""
    kl_covariance_epsilon: float = 0.0001
    """Its KL constraint, per dimension."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    entropy_weight: float = 0.0
    """Weight of the entropy bonus."""
    popart_step: float = 0.01
    """Step size of PopArt's statistics."""
    popart_min_scale: float = 1e-4
    """Smallest standard deviation that PopArt divides by."""
    extrinsic_scale_step: float = 0.01
    """Step size of the extrinsic reward's running root mean square."""
    intrinsic_scale_step: float | None = None
    """The same for the intrinsic reward after its normaliser, of each task; 0 leaves it as it is. None is the paper's
    choice: 0.01 for several tasks, of which those with small errors would be paid nothing, and 0 for one."""
    min_reward_scale: float = 1e-2
    """Smallest reward scale that is divided by."""


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam, for the networks and for the dual variables."""

    learning_rate: float = 1e-3
    """For the networks."""
    dual_learning_rate: float = 1e-2
    """For V-MPO's temperature and KL multipliers."""
    b1: float = 0.9
    """Adam's first decay."""
    b2: float = 0.999
    """Adam's second decay."""
    max_gradient_norm: float = 0.0
    """Clip the global norm of the gradient; 0 never clips."""


@dataclass(frozen=True)
class RuntimeConfig:
    """How acting and learning are laid out."""

    num_envs: int = 160
    """Environments stepped at once."""
    batch_size: int = 16
    """B, sequences per learner step; must divide num_envs."""
    sequence_length: int = 33
    """T, observations per sequence: T - 1 transitions."""
    rollouts_per_dispatch: int = 5
    """Acting and learning rounds per call of the compiled program."""
    devices: int = 0
    """Devices to spread the batch over; 0 takes as many as share it evenly."""
    actor_devices: int = 0
    """Devices that only act, for environments outside jit; with 0 the first learning device acts too."""
    actors: int = 1
    """Actor threads for environments outside jit, each with its share of them."""
    queue_size: int = 1
    """Rollouts that wait for the learner, per actor; a full queue holds its actor up. Bounds the policy's lag."""
    deterministic: bool = False
    """Act and learn in turn, so that runs with environments outside jit are repeatable."""


@dataclass(frozen=True)
class LogConfig:
    """What a run writes, and when."""

    log_every: int = 100_000
    """Environment steps between lines of metrics.jsonl."""
    checkpoint_every: int = 500_000
    """Environment steps between checkpoints."""
    evaluate_every: int = 0
    """Environment steps between evaluations of the target policy on fresh episodes; 0 never evaluates."""
    evaluate_episodes: int = 10
    """Episodes of an evaluation, per task."""
    window: int = 200
    """Episodes that success and return are averaged over, the last by the time they began."""
    tensorboard: bool = False
    """Also write TensorBoard events (extra: tensorboard)."""
    wandb: bool = False
    """Also write to Weights & Biases, offline unless WANDB_MODE says otherwise (extra: wandb)."""


@dataclass(frozen=True)
class Config:
    """One training run."""

    preset: str = "grid"
    """Named settings to start from; `byol-explore presets` lists them."""
    env: str = "rooms-6"
    """Environment, or several with commas for one agent that learns them all; `byol-explore envs` lists them."""
    method: str = "byol-explore"
    """Curiosity: byol-explore, rnd, icm or none (pure RL)."""
    regime: str = "mixed"
    """Reward: mixed (extrinsic + lambda intrinsic), intrinsic, or extrinsic."""
    ablation: str = "none"
    """Named change of the method: fixed-targets, horizon-1, no-clipping, no-sharing, prioritized, none."""
    seed: int = 0
    """Runs with the same seed on the same machine are equal bit for bit; outside jit if runtime.deterministic."""
    steps: int = 6_000_000
    """Environment steps to train for, over all environments."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    curiosity: CuriosityConfig = field(default_factory=CuriosityConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    stop_at_success: float = 0.0
    """End training as soon as this share of the last episodes of every task succeeds; 0 always trains all steps."""
    success_above: float | None = None
    """An episode with a return above this is a success, in every task. None leaves it to the environment: its own word
    (info is_success or success), else its threshold (Gymnasium's registered one, a human's score), if it has one."""
    log: LogConfig = field(default_factory=LogConfig)
    atari: AtariSettings = field(default_factory=AtariSettings)

    @property
    def env_ids(self) -> list[str]:
        return [name.strip() for name in self.env.split(",")]

    @property
    def steps_per_rollout(self) -> int:
        return self.runtime.num_envs * (self.runtime.sequence_length - 1)

    @property
    def steps_per_dispatch(self) -> int:
        return self.steps_per_rollout * self.runtime.rollouts_per_dispatch

    @property
    def total_steps(self) -> int:
        """`steps`, rounded up to whole dispatches."""
        return -(-self.steps // self.steps_per_dispatch) * self.steps_per_dispatch

    @property
    def updates_per_rollout(self) -> int:
        return self.runtime.num_envs // self.runtime.batch_size

    @property
    def prioritize(self) -> bool:
        """Whether intrinsic rewards are clipped: as set, or as the paper has it for the method."""
        setting = self.curiosity.prioritize
        return self.method == "byol-explore" if setting is None else setting

    @property
    def intrinsic_scale_step(self) -> float:
        """Step size of the intrinsic reward's scale: as set, or as the paper has it for one or several tasks."""
        setting = self.agent.intrinsic_scale_step
        return (0.01 if len(self.env_ids) > 1 else 0.0) if setting is None else setting

    @property
    def method_settings(self) -> dict[str, Any]:
        """The settings that ablations change, with the values that the method works with; none that it ignores."""
        values = {name: getattr(self.curiosity, name) for name in READ_BY[self.method]}
        if self.regime == "extrinsic":
            values.pop("prioritize", None)
        return values | ({"prioritize": self.prioritize} if "prioritize" in values else {})

    def validate(self) -> "Config":
        """Itself, or a UserError that names the first wrong value and what is accepted."""
        from byol_explore.presets import ABLATIONS, PRESETS, check_ablation

        if self.preset not in PRESETS:
            raise unknown("preset", self.preset, list(PRESETS))
        if self.method not in METHODS:
            raise unknown("method", self.method, list(METHODS))
        if self.regime not in REGIMES:
            raise unknown("regime", self.regime, list(REGIMES))
        if self.ablation not in ABLATIONS:
            raise unknown("ablation", self.ablation, list(ABLATIONS))
        check_ablation(self)
        if ABLATIONS[self.ablation].apply(self) != self:
            raise UserError(
                f"ablation {self.ablation!r} is named but its settings are not those of the configuration: "
                "take it from make_config, and change nothing that it sets"
            )
        if self.atari.evaluation not in RULES:
            raise unknown("atari.evaluation", self.atari.evaluation, list(RULES))
        if self.method == "none" and self.regime == "intrinsic":
            raise UserError("method 'none' has no intrinsic reward: choose another method or regime extrinsic")
        _check_numbers(self)
        runtime, transitions = self.runtime, self.runtime.sequence_length - 1
        if self.curiosity.horizon > transitions:
            raise UserError(
                f"curiosity.horizon {self.curiosity.horizon} does not fit a sequence of {transitions} transitions "
                f"(runtime.sequence_length {runtime.sequence_length}): choose 1 to {transitions}"
            )
        if max(runtime.num_envs, runtime.sequence_length) > MAX_SIZE:
            raise UserError(
                f"runtime.num_envs {runtime.num_envs} and runtime.sequence_length {runtime.sequence_length} "
                f"must be at most {MAX_SIZE}"
            )
        if not self.seed < 2**32:
            raise UserError(f"seed is {self.seed}: it must be below 2^32")
        if runtime.num_envs % runtime.batch_size:
            divisors = [size for size in range(1, runtime.num_envs + 1) if runtime.num_envs % size == 0]
            raise UserError(
                f"runtime.batch_size {runtime.batch_size} does not divide runtime.num_envs {runtime.num_envs}; "
                f"choose from: {', '.join(map(str, divisors))}"
            )
        if (runtime.num_envs // runtime.batch_size) % runtime.actors:
            raise UserError(
                f"runtime.actors {runtime.actors} cannot share {runtime.num_envs} environments in whole batches of "
                f"{runtime.batch_size}: make runtime.num_envs a multiple of {runtime.actors * runtime.batch_size}"
            )
        tasks = len(self.env_ids)
        if len(set(self.env_ids)) < tasks:
            raise UserError(f"env {self.env!r} names a task twice: every task is given once")
        if runtime.batch_size % tasks:
            raise UserError(
                f"{tasks} tasks cannot share a batch of {runtime.batch_size} evenly: "
                f"set runtime.batch_size to a multiple of {tasks}"
            )
        return self


_POSITIVE = {
    "steps", "embedding_size", "belief_size", "cell_size", "action_size", "action_bins", "horizon", "target_period",
    "temperature", "learning_rate", "num_envs", "batch_size", "rollouts_per_dispatch", "log_every",
    "checkpoint_every", "window", "min_reward_scale", "popart_min_scale", "actors", "queue_size",
    "action_repeat", "evaluate_episodes", "stack", "max_frames",
}  # fmt: skip
_FRACTIONS = {"target_decay", "top_fraction", "popart_step", "extrinsic_scale_step", "intrinsic_scale_step",
              "stop_at_success", "sticky"}  # fmt: skip
_ANY_SIGN = {"success_above"}
_BELOW_ONE = {"gamma", "normalizer_decay", "b1", "b2"}  # 1 minus these is divided by, or multiplies every reward


def _check_numbers(config: Any, prefix: str = "") -> None:
    for item in dataclasses.fields(config):
        value, name = getattr(config, item.name), prefix + item.name
        if dataclasses.is_dataclass(value):
            _check_numbers(value, name + ".")
        elif isinstance(value, tuple):
            if any(size < 1 for size in value):
                raise UserError(f"{name} is {value}: sizes must be at least 1")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            continue
        elif value != value or value in (float("inf"), float("-inf")):
            raise UserError(f"{name} is {value}: it must be finite")
        elif item.name in _POSITIVE and value <= 0:
            raise UserError(f"{name} is {value}: it must be positive")
        elif item.name in _FRACTIONS and not 0 <= value <= 1:
            raise UserError(f"{name} is {value}: it must lie between 0 and 1")
        elif item.name in _BELOW_ONE and not 0 <= value < 1:
            raise UserError(f"{name} is {value}: it must be at least 0 and below 1")
        elif item.name == "sequence_length" and value < 2:
            raise UserError(f"{name} is {value}: a sequence needs at least 2 observations")
        elif value < 0 and item.name not in _ANY_SIGN:
            raise UserError(f"{name} is {value}: it must not be negative")
    if isinstance(config, AgentConfig) and config.top_fraction == 0:
        raise UserError("agent.top_fraction is 0: nothing would be learned; choose a value above 0, up to 1")


def to_dict(config: Any) -> dict[str, Any]:
    """As plain data, for config.json."""
    return dataclasses.asdict(config)


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables inside tables by one dotted name each: "curiosity.horizon"."""
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat.update(flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat


def from_dict(data: dict[str, Any], kind: type = Config) -> Any:
    """The configuration that `to_dict` wrote."""
    values: dict[str, Any] = {}
    known = {item.name: item for item in dataclasses.fields(kind)}
    for name, value in data.items():
        if name not in known:
            raise unknown("configuration field", name, list(known))
        default = known[name].default_factory
        if isinstance(value, dict) and default is not dataclasses.MISSING:
            value = from_dict(value, default)  # pyright: ignore[reportArgumentType]
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def default_run_dir(config: Config) -> Path:
    """runs/<environment>/<method>[-<ablation>]-seed<seed>."""
    variant = config.method if config.ablation == "none" else f"{config.method}-{config.ablation}"
    if config.regime != "mixed":
        variant += f"-{config.regime}"
    return Path("runs") / file_name(config.env) / f"{variant}-seed{config.seed}"


def file_name(env: str) -> str:
    """What an environment, or several, is called on a disk."""
    return env.replace(",", "+").replace(":", "-").replace("/", "-")
