"""The whole configuration: frozen dataclasses that are at once config file, command line and its help."""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

from byol_explore.envs.families import check_words
from byol_explore.envs.settings import to_words
from byol_explore.errors import UserError, unknown
from byol_explore.registries import ALGORITHMS, ENCODERS, METHODS
from byol_explore.rules import Finite, Fraction, NotNegative, OneOf, Positive, check
from byol_explore.settings.parts import (
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

TASKS = ("fixed", "drawn")
REGIMES = ("mixed", "intrinsic", "extrinsic")
MAX_SIZE = 1_000_000


@dataclass(frozen=True)
class Config:
    """One training run."""

    preset: str = "grid"
    """Named settings to start from; `byol-explore presets` lists them."""
    env: str = "rooms-6"
    """Environment, or several with commas for one agent that learns them all; `byol-explore envs` lists them."""
    env_settings: tuple[str, ...] = ()
    """Settings of the environment as words, such as sticky=0.25 life_loss=true; `byol-explore envs --settings` lists
    them. They are joined to the preset's. In Python and in a study's file a table will do, {"sticky": 0.25}."""
    tasks: Annotated[str, OneOf(TASKS)] = "fixed"
    """Which of several tasks an environment plays: always the same one, evenly shared (fixed), or one that is drawn
    uniformly at the beginning of each episode, as in the paper (drawn). An environment with several tasks of its own,
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
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
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

    def intrinsic_scale_step(self, tasks: int) -> float:
        """Step size of the intrinsic reward's scale: as set, or as the paper has it for one or several tasks."""
        setting = self.agent.intrinsic_scale_step
        return (0.01 if tasks > 1 else 0.0) if setting is None else setting

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
        self._check_actors()
        if runtime.address and runtime.engine != "ray":
            raise UserError(f"runtime.address {runtime.address!r} needs runtime.engine ray, not {runtime.engine}")
        if runtime.inference == "central" and (runtime.engine != "ray" or runtime.deterministic):
            raise UserError("runtime.inference central needs runtime.engine ray, and cannot be runtime.deterministic")
        if not all(self.env_ids):
            raise UserError(f"env {self.env!r} has an empty name: it must be a name, or names with a comma between two")
        tasks = len(self.env_ids)
        if len(set(self.env_ids)) < tasks:
            raise UserError(f"env {self.env!r} names a task twice: every task is given once")
        check_words(self.env_ids, self.env_settings)
        if self.tasks == "fixed" and runtime.batch_size % tasks:
            raise UserError(
                f"{tasks} tasks cannot share a batch of {runtime.batch_size} evenly: "
                f"set runtime.batch_size to a multiple of {tasks}, or tasks to drawn"
            )
        check_distributed(self)
        return self

    def _check_actors(self) -> None:
        """A UserError unless actors share the environments evenly, and batches are whole."""
        runtime, size = self.runtime, self.runtime.batch_size
        share, rest = divmod(runtime.num_envs, runtime.actors)
        fills = runtime.engine == "ray" and share > 0 and size % share == 0  # a batch, together with others
        if rest or (share % size and not fills):
            several = f", or give each actor {_listed(_divisors(size))} environments" if runtime.engine == "ray" else ""
            raise UserError(
                f"runtime.actors {runtime.actors} cannot share {runtime.num_envs} environments in whole batches of "
                f"{size}: make runtime.num_envs a multiple of {runtime.actors * size}{several}"
            )
        tasks = len(self.env_ids)
        if self.tasks == "fixed" and share % size and share % tasks:
            raise UserError(
                f"{tasks} tasks cannot share the {share} environments of an actor evenly: give it a multiple of "
                f"{tasks}, or set tasks to drawn"
            )


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _listed(numbers: list[int]) -> str:
    return " or ".join(filter(None, [", ".join(map(str, numbers[:-1])), str(numbers[-1])]))


def check_distributed(config: Config) -> None:
    """A UserError if processes could not find each other, or not share the environments evenly."""
    setting, count = config.distributed, config.distributed.processes
    if setting.process >= count:
        accepted = f"it must be 0 to {count - 1}" if count > 1 else "it must be 0"
        raise UserError(f"distributed.process is {setting.process}: with distributed.processes {count} {accepted}")
    if count > 1 and not setting.coordinator:
        raise UserError(f"distributed.processes is {count}: give distributed.coordinator too, as host:port")
    if count == 1 and setting.coordinator:
        raise UserError(
            f"distributed.coordinator is {setting.coordinator!r}, but distributed.processes is 1: give both"
        )
    if count > 1 and config.runtime.engine == "ray":
        raise UserError(
            f"runtime.engine ray feeds one process that learns, not distributed.processes {count}: use threads"
        )
    host, _, port = setting.coordinator.rpartition(":")
    if setting.coordinator and not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise UserError(
            f"distributed.coordinator is {setting.coordinator!r}: it must be host:port, such as 10.0.0.1:4711"
        )
    tasks = len(config.env_ids) if config.tasks == "fixed" else 1
    if config.runtime.batch_size % (count * tasks):
        of_tasks = f" of {tasks} tasks" if tasks > 1 else ""
        raise UserError(
            f"{count} processes cannot share batches of {config.runtime.batch_size} sequences{of_tasks} evenly: "
            f"make runtime.batch_size a multiple of {count * tasks}"
        )


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


def file_name(env: str) -> str:
    """What an environment, or several, is called on a disk."""
    return env.replace(",", "+").replace(":", "-").replace("/", "-")
