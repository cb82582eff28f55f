"""What the parts of a run can be set to, a frozen dataclass each: settings, command line and its help at once."""

from dataclasses import dataclass
from typing import Annotated

from byol_explore.rules import AtLeastTwo, BelowOne, Fraction, NotNegative, OneOf, Positive, Share, Sizes

AUTO = "auto"  # the encoder that is usual for a kind of observations
ENGINES = ("threads", "ray")
INFERENCES = ("local", "central")


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
    core: Annotated[str, OneOf(("gru", "lstm"))] = "gru"
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
    action_bins: Positive[int | tuple[int, ...]] = 9
    """Bins of each continuous dimension of an action where it is an input: one number for all, or one for each."""


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
    """Clip rewards below their running mean; None is the paper's choice: byol-explore and byol-hindsight yes,
    the others no."""
    invariance: NotNegative[float] = 1.0
    """byol-hindsight: lambda, the weight of what hindsight may not tell beside the error of reconstruction."""
    hindsight_size: Positive[int | None] = None
    """byol-hindsight: the size of z and of its noise (256 elsewhere); None is that of an embedding."""
    forecasts: bool = True
    """byol-hindsight: whether the world model learns by BYOL-Explore's own loss, so that embeddings stay apart, and z
    need only tell what its forecast lacks; else all is as in its paper."""
    hindsight_cost: NotNegative[float] = 0.05
    """byol-hindsight, with forecasts: what telling a nat costs, so that z is noise where telling does not help."""
    mixing: NotNegative[float] = 0.1
    """lambda, the weight of the intrinsic reward in the mixed regime."""
    loss_weight: NotNegative[float] = 1.0
    """Weight of the curiosity's loss beside the agent's."""
    normalizer_decay: BelowOne[float] = 0.99
    """Decay of the intrinsic reward's running statistics."""
    normalize_per_task: bool = True
    """Whether every task has statistics of its own there, so that one with small errors is paid too; else all share."""
    embedding_size: Positive[int | None] = None
    """Width of an encoder of the curiosity's own (rnd and its like, or without sharing); None is the policy's width."""


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
    epochs: Positive[int] = 2
    """How often a rollout is learned from; each time costs as much as all of V-MPO's learning from it."""
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
    """Actors for environments outside jit, each with its share of them: threads, or processes with engine ray."""
    envs_per_actor: NotNegative[int] = 0
    """Environments of each actor: num_envs becomes actors times as many; with 0 the actors share num_envs."""
    queue_size: Positive[int] = 1
    """Rollouts that wait for the learner, per actor; a full queue holds its actor up. Bounds the policy's lag."""
    deterministic: bool = False
    """Act and learn in turn, so that runs with environments outside jit are repeatable."""
    step_timeout: Positive[float] = 60.0
    """Seconds that environments outside jit have for a step, and ten times as many to start, before the run ends (or
    their actor is started again, with engine ray)."""
    engine: Annotated[str, OneOf(ENGINES)] = "threads"
    """Where environments outside jit are acted in: in threads of this process (threads), or in processes of their own
    on this machine or many, which are started again when they die (ray; extra: ray; docs/cluster.md)."""
    address: str = ""
    """Engine ray: where a Ray cluster listens that is there already (host:port); empty starts one here for the run."""
    inference: Annotated[str, OneOf(INFERENCES)] = "local"
    """Engine ray: every actor acts with a copy of the policy (local), or a server acts for all of them at once, and
    actors only step environments (central)."""
    max_lag: Positive[int | None] = None
    """Engine ray: sequences are dropped, and counted, whose policy is more than so many learner steps old; None allows
    as many as ten rounds of all environments take."""

    def __post_init__(self) -> None:
        if isinstance(self.envs_per_actor, int) and self.envs_per_actor > 0 and isinstance(self.actors, int):
            object.__setattr__(self, "num_envs", self.actors * self.envs_per_actor)

    @property
    def envs_per_rollout(self) -> int:
        """Environments that the learner gets at once: an actor's, or those of as many Ray actors as fill a batch."""
        share = self.num_envs // self.actors
        return max(share, self.batch_size) if self.engine == "ray" else share


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
    wandb_project: str = "byol-explore"
    """The project there."""
    wandb_name: str = ""
    """What the run is called there; by default as its directory is."""


@dataclass(frozen=True)
class DistributedConfig:
    """Processes that learn together, on one host or several: the same command in each, but for `process`."""

    coordinator: str = ""
    """host:port of process 0, where all others find it."""
    processes: Positive[int] = 1
    """How many there are. Each has its share of the environments and of every batch."""
    process: NotNegative[int] = 0
    """Which of them this one is: 0 decides, logs and saves, all others follow it."""
    start_timeout: Positive[int] = 300
    """Seconds in which all of them must have started."""
    timeout: Positive[int] = 60
    """Seconds without a sign of life after which a process counts as lost, and all others end."""
