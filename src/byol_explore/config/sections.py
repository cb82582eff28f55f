"""Sections of the configuration, one frozen dataclass each: settings, command line and its help in one place."""

from dataclasses import dataclass
from typing import Annotated

from byol_explore.utils.validation import (
    AtLeastTwo,
    Fraction,
    FractionBelowOne,
    NonNegative,
    OneOf,
    Positive,
    PositiveFraction,
    Sizes,
)

AUTO = "auto"  # the default encoder of an observation space
ACTOR_BACKENDS = ("threads", "ray")
INFERENCE_MODES = ("local", "central")


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the networks."""

    encoder: str = AUTO
    """Observation encoder: grid, vector, image (light), atari and hard-eight (the paper's), tokens, or your own by
    import path (package.module:Name), for the entries of the observations that it supports; auto takes the default."""
    encoder_hidden: Sizes = (128,)
    """Hidden layers of the grid and vector encoders."""
    normalize_vectors: bool = True
    """Normalise vectors by their running mean and deviation before any network sees them."""
    core_inputs: tuple[str, ...] = ()
    """Entries of the observations, vectors or texts, that the closed-loop core reads beside f(o); they are neither
    encoded in f(o) nor predicted."""
    core_input_size: Positive[int] = 20
    """Size that such vectors and the previous action are projected to, if the core reads more than f(o) and actions."""
    use_prev_reward: bool = False
    """The core also reads the previous reward, squashed."""
    core_mix_size: Positive[int | None] = None
    """Size that all inputs of the core are projected to first, 512 in the paper for DM-HARD-8; None skips that."""
    center_encoders: bool = True
    """Start with biases (for images also a mean image) that make every layer of an encoder zero on average over the
    observations of some random steps. Without it embeddings start nearly parallel, and may collapse into one point."""
    cell_embedding_size: Positive[int] = 8
    """Size of the grid encoder's embedding of a cell."""
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
    action_embedding_size: Positive[int] = 32
    """Size of an action's embedding."""
    action_bins: Positive[int | tuple[int, ...]] = 9
    """Bins of each continuous dimension of an action that is an input: one number for all, or one for each."""


@dataclass(frozen=True)
class CuriosityConfig:
    """The world model, its uncertainty and the reward made from it."""

    horizon: Positive[int] = 5
    """K, how many steps ahead the world model predicts."""
    target_decay: Fraction[float] = 0.99
    """alpha of the target network's moving average; 1 is the fixed-targets ablation."""
    share_representation: bool = True
    """Curiosity and policy share encoder and closed-loop core."""
    prioritize: bool | None = None
    """Reduce the normalised uncertainty by its running mean and cut it off at 0, which the paper calls prioritisation
    and clipping; None is the paper's choice: byol-explore and byol-hindsight yes, the others no."""
    invariance_weight: NonNegative[float] = 1.0
    """byol-hindsight: lambda, the weight of the invariance loss beside the error of reconstruction."""
    hindsight_latent_size: Positive[int | None] = None
    """byol-hindsight: the size of z and of its noise (256 elsewhere); None is that of an embedding."""
    use_forecaster: bool = True
    """byol-hindsight: learn the world model by BYOL-Explore's loss, so that embeddings stay apart and z contains only
    what the forecast lacks; otherwise as in its paper."""
    hindsight_latent_penalty: NonNegative[float] = 0.05
    """byol-hindsight, with forecasts: cost per nat of information in z, so that z is noise where it does not help."""
    mixing: NonNegative[float] = 0.1
    """lambda, the weight of the intrinsic reward in the mixed regime."""
    loss_weight: NonNegative[float] = 1.0
    """Weight of the curiosity's loss beside the agent's."""
    normalizer_decay: FractionBelowOne[float] = 0.99
    """Decay of the intrinsic reward's running statistics."""
    normalize_per_task: bool = True
    """Keep these statistics per task, so that a task with small errors gets rewards too; otherwise tasks share them."""
    embedding_size: Positive[int | None] = None
    """N of the curiosity's own encoder (methods such as rnd, or without sharing); None is that of the policy's."""


@dataclass(frozen=True)
class AgentConfig:
    """Settings of all algorithms: discount, value head and scales of rewards."""

    gamma: FractionBelowOne[float] = 0.99
    """Discount factor."""
    value_weight: NonNegative[float] = 0.5
    """Weight of the value loss."""
    entropy_weight: NonNegative[float] = 0.0
    """Weight of the entropy bonus."""
    popart_step_size: Fraction[float] = 0.01
    """Step size of PopArt's statistics; 0 does not normalise values."""
    popart_min_relative_std: Positive[float] = 1e-3
    """Smallest standard deviation that PopArt divides by, as a fraction of the root mean square of value targets."""
    extrinsic_rms_step_size: Fraction[float] = 0.01
    """Step size of the extrinsic reward's running root mean square."""
    intrinsic_rms_step_size: Fraction[float | None] = None
    """The same for the intrinsic reward of each task after its normalizer; 0 does not scale it. None is the paper's
    choice: 0.01 for several tasks, so that those with small errors get rewards, and 0 for one."""
    min_relative_reward_rms: Positive[float] = 1e-2
    """Smallest reward scale that is divided by, as a fraction of the root mean square of rewards other than 0."""


@dataclass(frozen=True)
class VMPOConfig:
    """V-MPO, the paper's algorithm; with --algorithm v-mpo."""

    top_fraction: PositiveFraction[float] = 0.5
    """Share of the samples, best advantages first, that the policy learns from."""
    target_period: Positive[int] = 10
    """Learner steps between refreshes of the target policy, which acts."""
    init_temperature: Positive[float] = 1.0
    """eta, the temperature at the start; advantages are in units of PopArt's standard deviation."""
    epsilon_temperature: NonNegative[float] = 0.1
    """eps_eta, its constraint."""
    init_alpha_categorical: NonNegative[float] = 0.1
    """alpha of discrete actions at the start."""
    epsilon_categorical: NonNegative[float] = 0.01
    """Its KL constraint."""
    init_alpha_mean: NonNegative[float] = 1.0
    """alpha of Gaussian means at the start."""
    epsilon_mean: NonNegative[float] = 0.001
    """Its KL constraint, per dimension."""
    init_alpha_covariance: NonNegative[float] = 1.0
    """alpha of Gaussian variances at the start."""
    epsilon_covariance: NonNegative[float] = 0.0001
    """Its KL constraint, per dimension."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation; with --algorithm ppo."""

    clip_epsilon: Positive[float] = 0.2
    """How far the ratio of new to old probabilities may move from 1 before an advantage stops counting."""
    gae_lambda: Fraction[float] = 0.95
    """lambda of generalised advantage estimation."""
    epochs: Positive[int] = 2
    """Passes over a rollout; each costs as much as V-MPO's single one."""
    normalize_advantage: bool = True
    """Give the advantages of a minibatch mean 0 and deviation 1."""


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam, for the networks and for the dual variables."""

    learning_rate: Positive[float] = 1e-3
    """For the networks."""
    dual_learning_rate: NonNegative[float] = 1e-2
    """For the logarithm of V-MPO's temperature, and for its KL multipliers."""
    b1: FractionBelowOne[float] = 0.9
    """Adam's first decay."""
    b2: FractionBelowOne[float] = 0.999
    """Adam's second decay."""
    max_grad_norm: NonNegative[float] = 0.0
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
    rounds_per_dispatch: Positive[int] = 5
    """Rounds between two looks at metrics and signals; a round is one rollout of every environment and learning from
    it."""
    num_devices: NonNegative[int] = 0
    """Devices to spread the batch over; 0 takes as many as share it evenly."""
    num_actor_devices: NonNegative[int] = 0
    """Devices that only act, for environments outside jit; with 0 the first learning device acts too."""
    num_actors: Positive[int] = 1
    """Actors for environments outside jit, each with its share of them: threads, or processes with
    actor_backend ray."""
    envs_per_actor: NonNegative[int] = 0
    """Environments of each actor: num_envs becomes actors times as many; with 0 the actors share num_envs."""
    queue_size: Positive[int] = 1
    """Rollouts that wait for the learner, per actor; a full queue holds its actor up. Bounds the policy's lag."""
    synchronous: bool = False
    """Alternate acting and learning, so that runs with environments outside jit are repeatable. Otherwise actors run
    ahead of the learner (asynchronous)."""
    step_timeout: Positive[float] = 60.0
    """Seconds that environments outside jit have for a step, and ten times as many to start, before the run ends (or
    their actor is started again, with actor_backend ray)."""
    max_env_restarts: NonNegative[int] = 20
    """How often environments outside jit that raise, end their process, or return a wrong shape or a number that is not
    finite are restarted, in each actor and session; one more fault ends the run (or starts the actor again, with
    actor_backend ray)."""
    actor_backend: Annotated[str, OneOf(ACTOR_BACKENDS)] = "threads"
    """Where environments outside jit run: in threads of this process (threads), or in processes of their own
    on this machine or many, which are started again when they die (ray; extra: ray; docs/cluster.md)."""
    ray_address: str = ""
    """With actor_backend ray: host:port of a running Ray cluster; empty starts one on this machine for the run."""
    inference: Annotated[str, OneOf(INFERENCE_MODES)] = "local"
    """With actor_backend ray: every actor acts with a copy of the policy (local), or a server acts for all of them at
    once and actors only step environments (central)."""
    max_policy_lag: Positive[int | None] = None
    """With actor_backend ray: drop and count sequences whose policy is more than this number of learner steps old; None
    allows the steps of ten rounds of all environments."""

    def __post_init__(self) -> None:
        if isinstance(self.envs_per_actor, int) and self.envs_per_actor > 0 and isinstance(self.num_actors, int):
            object.__setattr__(self, "num_envs", self.num_actors * self.envs_per_actor)

    @property
    def envs_per_rollout(self) -> int:
        """Return the environments of one rollout: those of one actor, or of the Ray actors that fill a batch."""
        share = self.num_envs // self.num_actors
        return max(share, self.batch_size) if self.actor_backend == "ray" else share


@dataclass(frozen=True)
class LogConfig:
    """Log, checkpoints and evaluations of a run."""

    log_every: Positive[int] = 100_000
    """Environment steps between lines of metrics.jsonl."""
    checkpoint_every: Positive[int] = 500_000
    """Environment steps between checkpoints."""
    evaluate_every: NonNegative[int] = 0
    """Environment steps between evaluations of the target policy on fresh episodes; 0 never evaluates."""
    evaluate_episodes: Positive[int] = 10
    """Episodes of an evaluation, per task."""
    episode_window: Positive[int] = 200
    """Episodes that success and return are averaged over: those that began last."""
    tensorboard: bool = False
    """Also write TensorBoard events (extra: tensorboard)."""
    wandb: bool = False
    """Also write to Weights & Biases, offline unless WANDB_MODE says otherwise (extra: wandb)."""
    wandb_project: str = "byol-explore"
    """The project there."""
    wandb_name: str = ""
    """Name of the run there; empty takes the name of its directory."""


@dataclass(frozen=True)
class DistributedConfig:
    """Processes that learn together, on one host or several: the same command in each, but for `process_id`."""

    coordinator_address: str = ""
    """host:port of process 0, which all others connect to."""
    num_processes: Positive[int] = 1
    """Number of processes. Each has its share of the environments and of every batch."""
    process_id: NonNegative[int] = 0
    """Number of this process: 0 decides, logs and saves, all others follow it."""
    initialization_timeout: Positive[int] = 300
    """Seconds within which all processes must have started."""
    heartbeat_timeout: Positive[int] = 60
    """Seconds without a sign of life after which a process counts as lost, and all others end."""
