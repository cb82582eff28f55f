"""Config: all settings of a run, checks across fields, plain data, and settings that depend on the method."""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

from byol_explore.config.sections import (
    AUTO,
    AgentConfig,
    CuriosityConfig,
    DistributedConfig,
    LogConfig,
    NetworkConfig,
    OptimizerConfig,
    PPOConfig,
    RuntimeConfig,
    VMPOConfig,
)
from byol_explore.envs.families import AtariSettings, DMHardEightSettings, GymnasiumSettings, HardEightSettings
from byol_explore.envs.names import EnvSettings, format_kwargs, is_external
from byol_explore.errors import UserError, unknown_name
from byol_explore.registry import ALGORITHMS, ENCODERS, METHODS
from byol_explore.utils.validation import Finite, Fraction, NonNegative, OneOf, Positive, parse_host_port, validate

TASKS = ("fixed", "random")
REGIMES = ("mixed", "intrinsic", "extrinsic")
MAX_SIZE = 1_000_000


@dataclass(frozen=True)
class Config:
    """One training run."""

    preset: str = "grid"
    """Named settings to start from; `byol-explore presets` lists them."""
    env: str = "rooms-6"
    """Environment, or several with commas for one agent that learns them all; `byol-explore envs` lists them."""
    env_kwargs: tuple[str, ...] = ()
    """Keyword arguments, as name=value, of your own environments, of gymnasium.make and of envpool.make. In Python a
    dict will do."""
    task_sampling: Annotated[str, OneOf(TASKS)] = "fixed"
    """Which of several tasks an environment plays: always the same one, evenly shared (fixed), or one that is drawn
    uniformly at the beginning of each episode, as in the paper (random). An environment with several tasks of its own,
    such as hard-eight:all, always draws them."""
    method: str = "byol-explore"
    """Curiosity: byol-explore, byol-hindsight (for worlds that are partly noise), rnd, icm, e3b (elliptical episodic),
    noveld, disagreement (of an ensemble), counts (hashed), re3 (nearest neighbours), ngu (the same in an episode, times
    rnd), none (pure RL), or your own by import path (package.module:Name)."""
    algorithm: str = "v-mpo"
    """What learns the policy from rewards: v-mpo, ppo, or your own by import path (package.module:Name)."""
    regime: Annotated[str, OneOf(REGIMES)] = "mixed"
    """Reward: mixed (extrinsic + lambda intrinsic), intrinsic, or extrinsic."""
    ablation: str = "none"
    """Named change of the method: fixed-targets, horizon-1, no-clipping, no-sharing, prioritized, none."""
    seed: NonNegative[int] = 0
    """Runs with the same seed on the same machine and number of devices are equal bit for bit, except for elapsed
    times; outside jit only with runtime.synchronous."""
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
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
    stop_at_success_rate: Fraction[float] = 0.0
    """End training as soon as this share of the last episodes of every task succeeds; 0 always trains all steps."""
    success_threshold: Finite[float | None] = None
    """An episode with a return above this is a success, in every task. None leaves it to the environment: its own
    success flag (info is_success or success), else its threshold (Gymnasium's registered one, a human's score), if it
    has one."""
    log: LogConfig = field(default_factory=LogConfig)
    atari: AtariSettings = field(default_factory=AtariSettings)
    gymnasium: GymnasiumSettings = field(default_factory=GymnasiumSettings)
    hard_eight: HardEightSettings = field(default_factory=HardEightSettings)
    dm_hard_eight: DMHardEightSettings = field(default_factory=DMHardEightSettings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "env_kwargs", format_kwargs(self.env_kwargs))

    @property
    def env_settings(self) -> EnvSettings:
        """Return the settings that `make_envs` takes beside the names."""
        return EnvSettings(**{item.name: getattr(self, item.name) for item in dataclasses.fields(EnvSettings)})

    @property
    def env_ids(self) -> list[str]:
        """Return the names of the environments, one per task."""
        return [name.strip() for name in self.env.split(",")]

    @property
    def steps_per_round(self) -> int:
        """Return the environment steps of a round: one rollout of every environment."""
        return self.runtime.num_envs * (self.runtime.sequence_length - 1)

    @property
    def steps_per_dispatch(self) -> int:
        return self.steps_per_round * self.runtime.rounds_per_dispatch

    @property
    def total_steps(self) -> int:
        """Return `steps`, rounded up to whole dispatches."""
        return -(-self.steps // self.steps_per_dispatch) * self.steps_per_dispatch

    def intrinsic_rms_step_size(self, tasks: int) -> float:
        """Return the step size of the intrinsic reward's root mean square; by default the paper's for `tasks` tasks."""
        setting = self.agent.intrinsic_rms_step_size
        return (0.01 if tasks > 1 else 0.0) if setting is None else setting

    def validate(self) -> "Config":
        """Check all values.

        Returns:
          This configuration. Raises a UserError that names the first wrong value and the accepted ones.
        """
        validate(self)
        METHODS.check(self.method)
        ALGORITHMS.check(self.algorithm)
        ENCODERS.check(self.network.encoder, AUTO)
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
            raise UserError(
                f"runtime.batch_size {runtime.batch_size} does not divide runtime.num_envs {runtime.num_envs}; "
                f"choose from: {', '.join(map(str, _divisors(runtime.num_envs)))}"
            )
        self._check_actors()
        if runtime.ray_address and runtime.actor_backend != "ray":
            raise UserError(
                f"runtime.ray_address {runtime.ray_address!r} needs runtime.actor_backend ray, not "
                f"{runtime.actor_backend}"
            )
        if runtime.inference == "central" and (runtime.actor_backend != "ray" or runtime.synchronous):
            raise UserError(
                "runtime.inference central needs runtime.actor_backend ray, and cannot be runtime.synchronous"
            )
        if not all(self.env_ids):
            raise UserError(f"env {self.env!r} has an empty name: it must be a name, or names with a comma between two")
        tasks = len(self.env_ids)
        if len(set(self.env_ids)) < tasks:
            raise UserError(f"env {self.env!r} names a task twice: every task is given once")
        self.env_settings.check(self.env_ids)
        if self.task_sampling == "fixed" and runtime.batch_size % tasks:
            raise UserError(
                f"{tasks} tasks cannot share a batch of {runtime.batch_size} evenly: "
                f"set runtime.batch_size to a multiple of {tasks}, or task_sampling to random"
            )
        validate_distributed(self)
        return self

    def _check_actors(self) -> None:
        """Raise a UserError unless actors have equally many environments, which make whole batches."""
        runtime, size, is_ray = self.runtime, self.runtime.batch_size, self.runtime.actor_backend == "ray"
        share, rest = divmod(runtime.num_envs, runtime.num_actors)
        fills_batch = is_ray and share > 0 and size % share == 0  # several Ray actors together make a batch
        if rest or (share % size and not fills_batch):
            several = f", or give each actor {_join_or(_divisors(size))} environments" if is_ray else ""
            raise UserError(
                f"runtime.num_actors {runtime.num_actors} cannot share {runtime.num_envs} environments in whole "
                f"batches of {size}: make runtime.num_envs a multiple of {runtime.num_actors * size}{several}"
            )
        tasks = len(self.env_ids)
        if self.task_sampling == "fixed" and share % size and share % tasks:
            raise UserError(
                f"{tasks} tasks cannot share the {share} environments of an actor evenly: give it a multiple of "
                f"{tasks}, or set task_sampling to random"
            )


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _join_or(numbers: list[int]) -> str:
    """Write numbers as "1, 2 or 4"."""
    return " or ".join(filter(None, [", ".join(map(str, numbers[:-1])), str(numbers[-1])]))


def validate_distributed(config: Config) -> None:
    """Raise a UserError if processes cannot find each other or cannot share batches evenly."""
    setting, count = config.distributed, config.distributed.num_processes
    if setting.process_id >= count:
        accepted = f"it must be 0 to {count - 1}" if count > 1 else "it must be 0"
        raise UserError(
            f"distributed.process_id is {setting.process_id}: with distributed.num_processes {count} {accepted}"
        )
    if count > 1 and not setting.coordinator_address:
        raise UserError(f"distributed.num_processes is {count}: give distributed.coordinator_address too, as host:port")
    if count == 1 and setting.coordinator_address:
        raise UserError(
            f"distributed.coordinator_address is {setting.coordinator_address!r}, but distributed.num_processes "
            f"is 1: give both"
        )
    if count > 1 and config.runtime.actor_backend == "ray":
        raise UserError(
            f"runtime.actor_backend ray feeds one process that learns, not distributed.num_processes {count}: "
            f"use threads"
        )
    if setting.coordinator_address and parse_host_port(setting.coordinator_address) is None:
        raise UserError(
            f"distributed.coordinator_address is {setting.coordinator_address!r}: it must be host:port, such as "
            f"10.0.0.1:4711"
        )
    tasks = len(config.env_ids) if config.task_sampling == "fixed" else 1
    if config.runtime.batch_size % (count * tasks):
        of_tasks = f" of {tasks} tasks" if tasks > 1 else ""
        raise UserError(
            f"{count} processes cannot share batches of {config.runtime.batch_size} sequences{of_tasks} evenly: "
            f"make runtime.batch_size a multiple of {count * tasks}"
        )


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a configuration to plain data for config.json."""
    return dataclasses.asdict(config)


def from_dict(data: dict[str, Any], kind: type = Config, *, lenient: bool = False) -> Any:
    """Read what `to_dict` returned; missing fields get their defaults.

    Args:
      data: may come from a file; `validate` checks the values.
      kind: dataclass to make, of which all sections have a default factory.
      lenient: ignore unknown fields, which other versions wrote, instead of raising a UserError.
    Returns:
      An instance of `kind`.
    """
    values: dict[str, Any] = {}
    known = {item.name: item for item in dataclasses.fields(kind)}
    for name, value in data.items():
        if name not in known:
            if lenient:
                continue
            raise unknown_name("configuration field", name, list(known))
        default = known[name].default_factory
        if isinstance(value, dict) and default is not dataclasses.MISSING:
            value = from_dict(value, default, lenient=lenient)  # pyright: ignore[reportArgumentType]
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def env_dir_name(env: str) -> str:
    """Return the directory name of an environment, or of several with commas between them."""
    return env.replace(",", "+").replace(":", "-").replace("/", "-")


def is_prioritized(config: Config) -> bool:
    """Return True if rewards are reduced by their mean and cut off at 0; by default as in the method's paper."""
    setting = config.curiosity.prioritize
    return METHODS.get(config.method).prioritized_by_default if setting is None else setting


def has_intrinsic_reward(config: Config) -> bool:
    """Return True if the reward has an intrinsic part."""
    return METHODS.get(config.method).has_reward and config.regime != "extrinsic"


def has_own_representation(config: Config) -> bool:
    """Return True if the curiosity trains an encoder and a core of its own."""
    method = METHODS.get(config.method)
    return method.has_reward and method.uses_representation and not config.curiosity.share_representation


def embedding_size(config: Config) -> int:
    """Return N of the encoder that the curiosity reads: the policy's or its own."""
    own = config.curiosity.embedding_size
    may_differ = not METHODS.get(config.method).uses_representation or not config.curiosity.share_representation
    return own if own is not None and may_differ else config.network.embedding_size


def effective_settings(config: Config) -> dict[str, object]:
    """Return the curiosity settings that the method reads, with defaults resolved."""
    values = {name: getattr(config.curiosity, name) for name in METHODS.get(config.method).config_fields}
    if "prioritize" in values:
        values["prioritize"] = is_prioritized(config)
    if config.regime == "extrinsic":
        values.pop("prioritize", None)
    return values


def external_code(config: Config) -> list[str]:
    """Return the names in a configuration that lead to code outside this package."""
    names = [config.method, config.algorithm, config.preset, config.network.encoder, *config.env_ids]
    named = [name for name in dict.fromkeys(names) if is_external(name)]
    return named + config.env_settings.external(config.env_ids)
