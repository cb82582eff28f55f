"""The whole configuration: frozen dataclasses that are at once config file, command line and its help."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from byol_explore.envs.families import check_words
from byol_explore.envs.settings import to_words
from byol_explore.errors import UserError, unknown
from byol_explore.registries import ALGORITHMS, ENCODERS, METHODS
from byol_explore.rules import AtLeastTwo, BelowOne, Finite, Fraction, NotNegative, OneOf, Positive, Share, Sizes, check

TASKS = ("fixed", "drawn")
REGIMES = ("mixed", "intrinsic", "extrinsic")
MAX_SIZE = 1_000_000
AUTO = "auto"  # the encoder that is usual for a kind of observations


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the networks."""

    encoder: str = AUTO
    """Observation encoder: grid, vector, image (light), atari and hard-eight (the paper's), tokens, or your own by
    import path (package.module:Name), for those entries of the observations that it can read; auto is the usual one."""
    encoder_hidden: Sizes = (128,)
    """Hidden layers of the grid and vector encoders."""
    normalize_vectors: bool = True
    """Whether vectors are normalised by their running mean and deviation before any network sees them."""
    core_reads: tuple[str, ...] = ()
    """Entries of the observations, vectors or texts, that the closed-loop core reads beside f(o), which then neither
    encodes nor predicts them."""
    sense_size: Positive[int] = 20
    """Numbers that each such vector and the previous action become, if the core reads anything but f(o) and actions."""
    reads_reward: bool = False
    """Whether the core also reads the previous reward, squashed."""
    mix_size: Positive[int | None] = None
    """Size that all that the core reads is projected to first, as the paper does for DM-HARD-8 (512); None does not."""
    center: bool = True
    """Start with biases (for images also a mean image) that make every layer of an encoder zero on average over the
    observations of some random steps. Without it embeddings start nearly parallel, and may collapse into one point."""
    cell_size: Positive[int] = 8
    """Numbers per cell that the grid encoder looks up."""
    embedding_size: Positive[int] = 64
    """N, the size of f(o)."""
    core: str = "gru"
    """Recurrent core: gru or lstm."""
    belief_size: Positive[int] = 64
    """M, the size of b."""
    policy_hidden: Sizes = (128,)
    """Hidden layers of the policy head."""
    value_hidden: Sizes = (128,)
    """Hidden layers of the value head."""
    predictor_hidden: Sizes = (128,)
    """Hidden layers of the curiosity's predictor."""
    action_size: Positive[int] = 32
    """Size of an action's embedding."""
    action_bins: Positive[int] = 9
    """Bins per continuous action dimension where an action is an input."""


@dataclass(frozen=True)
class CuriosityConfig:
    """The world model, its uncertainty and the reward made from it."""

    horizon: Positive[int] = 5
    """K, how many steps ahead the world model predicts."""
    target_decay: Fraction[float] = 0.99
    """alpha of the target network's moving average; 1 is the fixed-targets ablation."""
    share: bool = True
    """Whether curiosity and policy share encoder and closed-loop core."""
    prioritize: bool | None = None
    """Clip rewards below their running mean; None is the paper's choice: byol-explore yes, rnd and icm no."""
    mixing: NotNegative[float] = 0.1
    """lambda, the weight of the intrinsic reward in the mixed regime."""
    loss_weight: NotNegative[float] = 1.0
    """Weight of the curiosity's loss beside the agent's."""
    normalizer_decay: BelowOne[float] = 0.99
    """Decay of the intrinsic reward's running statistics."""
    normalize_per_task: bool = True
    """Whether every task has statistics of its own there, so that one with small errors is paid too; else all share."""
    embedding_size: Positive[int | None] = None
    """Width of an encoder of the curiosity's own (rnd, or without sharing); None is the policy's width."""


@dataclass(frozen=True)
class AgentConfig:
    """What every algorithm shares: discount, value head and the scales of rewards."""

    gamma: BelowOne[float] = 0.99
    """Discount factor."""
    value_weight: NotNegative[float] = 0.5
    """Weight of the value loss."""
    entropy_weight: NotNegative[float] = 0.0
    """Weight of the entropy bonus."""
    popart_step: Fraction[float] = 0.01
    """Step size of PopArt's statistics."""
    popart_min_scale: Positive[float] = 1e-4
    """Smallest standard deviation that PopArt divides by."""
    extrinsic_scale_step: Fraction[float] = 0.01
    """Step size of the extrinsic reward's running root mean square."""
    intrinsic_scale_step: Fraction[float | None] = None
    """The same for the intrinsic reward after its normalizer, of each task; 0 leaves it as it is. None is the paper's
    choice: 0.01 for several tasks, of which those with small errors would be paid nothing, and 0 for one."""
    min_reward_scale: Positive[float] = 1e-2
    """Smallest reward scale that is divided by."""


@dataclass(frozen=True)
class VMPOConfig:
    """V-MPO, the paper's algorithm; with --algorithm v-mpo."""

    top_fraction: Share[float] = 0.5
    """Share of the samples, best advantages first, that the policy learns from."""
    target_period: Positive[int] = 10
    """Learner steps between refreshes of the target policy, which acts."""
    temperature: Positive[float] = 0.1
    """eta, the temperature at the start."""
    temperature_epsilon: NotNegative[float] = 0.1
    """eps_eta, its constraint."""
    kl_categorical: NotNegative[float] = 0.1
    """alpha of discrete actions at the start."""
    kl_categorical_epsilon: NotNegative[float] = 0.01
    """Its KL constraint."""
    kl_mean: NotNegative[float] = 1.0
    """alpha of Gaussian means at the start."""
    kl_mean_epsilon: NotNegative[float] = 0.001
    """Its KL constraint, per dimension."""
    kl_covariance: NotNegative[float] = 1.0
    """alpha of Gaussian variances at the start."""
    kl_covariance_epsilon: NotNegative[float] = 0.0001
    """Its KL constraint, per dimension."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation; with --algorithm ppo."""

    clip: Positive[float] = 0.2
    """How far the ratio of new to old probabilities may move from 1 before an advantage stops counting."""
    gae_lambda: Fraction[float] = 0.95
    """lambda of generalised advantage estimation."""
    epochs: Positive[int] = 4
    """How often a rollout is learned from."""
    normalize_advantage: bool = True
    """Whether the advantages of a minibatch get mean 0 and deviation 1."""


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam, for the networks and for the dual variables."""

    learning_rate: Positive[float] = 1e-3
    """For the networks."""
    dual_learning_rate: NotNegative[float] = 1e-2
    """For V-MPO's temperature and KL multipliers."""
    b1: BelowOne[float] = 0.9
    """Adam's first decay."""
    b2: BelowOne[float] = 0.999
    """Adam's second decay."""
    max_gradient_norm: NotNegative[float] = 0.0
    """Clip the global norm of the gradient; 0 never clips."""


@dataclass(frozen=True)
class RuntimeConfig:
    """How acting and learning are laid out."""

    num_envs: Positive[int] = 160
    """Environments stepped at once."""
    batch_size: Positive[int] = 16
    """B, sequences per learner step; must divide num_envs."""
    sequence_length: AtLeastTwo[int] = 33
    """T, observations per sequence: T - 1 transitions."""
    rollouts_per_dispatch: Positive[int] = 5
    """Acting and learning rounds per call of the compiled program."""
    devices: NotNegative[int] = 0
    """Devices to spread the batch over; 0 takes as many as share it evenly."""
    actor_devices: NotNegative[int] = 0
    """Devices that only act, for environments outside jit; with 0 the first learning device acts too."""
    actors: Positive[int] = 1
    """Actor threads for environments outside jit, each with its share of them."""
    queue_size: Positive[int] = 1
    """Rollouts that wait for the learner, per actor; a full queue holds its actor up. Bounds the policy's lag."""
    deterministic: bool = False
    """Act and learn in turn, so that runs with environments outside jit are repeatable."""


@dataclass(frozen=True)
class LogConfig:
    """What a run writes, and when."""

    log_every: Positive[int] = 100_000
    """Environment steps between lines of metrics.jsonl."""
    checkpoint_every: Positive[int] = 500_000
    """Environment steps between checkpoints."""
    evaluate_every: NotNegative[int] = 0
    """Environment steps between evaluations of the target policy on fresh episodes; 0 never evaluates."""
    evaluate_episodes: Positive[int] = 10
    """Episodes of an evaluation, per task."""
    window: Positive[int] = 200
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
    env_settings: tuple[str, ...] = ()
    """Settings of the environment as words, such as sticky=0.25 life_loss=true; `byol-explore envs --settings` lists
    them. In Python and in a study's file a table will do, {"sticky": 0.25}."""
    tasks: Annotated[str, OneOf(TASKS)] = "fixed"
    """Which of several tasks an environment plays: always the same one, evenly shared (fixed), or one that is drawn
    uniformly at the beginning of each episode, as in the paper (drawn)."""
    method: str = "byol-explore"
    """Curiosity: byol-explore, rnd, icm, none (pure RL), or your own by import path (package.module:Name)."""
    algorithm: str = "v-mpo"
    """What learns the policy from rewards: v-mpo, ppo, or your own by import path (package.module:Name)."""
    regime: Annotated[str, OneOf(REGIMES)] = "mixed"
    """Reward: mixed (extrinsic + lambda intrinsic), intrinsic, or extrinsic."""
    ablation: str = "none"
    """Named change of the method: fixed-targets, horizon-1, no-clipping, no-sharing, prioritized, none."""
    seed: NotNegative[int] = 0
    """Runs with the same seed on the same machine are equal bit for bit; outside jit if runtime.deterministic."""
    init_from: str = ""
    """Another run's directory: start from its networks and statistics instead of fresh ones. For example curiosity
    alone first (--regime intrinsic), then a reward."""
    steps: Positive[int] = 6_000_000
    """Environment steps to train for, over all environments."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    curiosity: CuriosityConfig = field(default_factory=CuriosityConfig)
    agent: AgentConfig = field(default_factory=AgentConfig)
    vmpo: VMPOConfig = field(default_factory=VMPOConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    stop_at_success: Fraction[float] = 0.0
    """End training as soon as this share of the last episodes of every task succeeds; 0 always trains all steps."""
    success_above: Finite[float | None] = None
    """An episode with a return above this is a success, in every task. None leaves it to the environment: its own word
    (info is_success or success), else its threshold (Gymnasium's registered one, a human's score), if it has one."""
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        object.__setattr__(self, "env_settings", to_words(self.env_settings))

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
    def intrinsic_scale_step(self) -> float:
        """Step size of the intrinsic reward's scale: as set, or as the paper has it for one or several tasks."""
        setting = self.agent.intrinsic_scale_step
        return (0.01 if len(self.env_ids) > 1 else 0.0) if setting is None else setting

    def validate(self) -> "Config":
        """Itself, or a UserError that names the first wrong value and what is accepted."""
        check(self)
        METHODS.check(self.method)
        ALGORITHMS.check(self.algorithm)
        encoder = self.network.encoder
        if encoder != AUTO and not ENCODERS.knows(encoder):
            raise unknown("encoder", encoder, [AUTO, *ENCODERS.names(), "package.module:Name"])
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
        check_words(self.env_ids, self.env_settings)
        if self.tasks == "fixed" and runtime.batch_size % tasks:
            raise UserError(
                f"{tasks} tasks cannot share a batch of {runtime.batch_size} evenly: "
                f"set runtime.batch_size to a multiple of {tasks}, or tasks to drawn"
            )
        return self


def to_dict(config: Any) -> dict[str, Any]:
    """As plain data, for config.json."""
    return dataclasses.asdict(config)


def changed(config: Any, changes: dict[str, Any]) -> Any:
    """A configuration with other values; a dict changes fields of a part: {"curiosity": {"horizon": 8}}."""
    known = [item.name for item in dataclasses.fields(config)]
    values = {}
    for name, value in changes.items():
        if name not in known:
            raise unknown("setting", name, known)
        part = getattr(config, name)
        nested = dataclasses.is_dataclass(part) and isinstance(value, dict)
        values[name] = changed(part, value) if nested else tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(config, **values)


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
    """runs/<environment>/<method>[-<ablation>][-<algorithm>][-<regime>]-seed<seed>."""
    usual = Config()
    words = [file_name(config.method)]
    words += [file_name(getattr(config, name)) for name in ("ablation", "algorithm", "regime")
              if getattr(config, name) != getattr(usual, name)]  # fmt: skip
    return Path("runs") / file_name(config.env) / f"{'-'.join(words)}-seed{config.seed}"


def file_name(env: str) -> str:
    """What an environment, or several, is called on a disk."""
    return env.replace(",", "+").replace(":", "-").replace("/", "-")
