"""`byol-explore train`: an agent into a run directory."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from byol_explore.cli import together
from byol_explore.cli.parsing import OneLineParser, parse
from byol_explore.envs.settings import merged
from byol_explore.errors import UserError
from byol_explore.interrupts import leaving_at_once
from byol_explore.rules import whole_number
from byol_explore.run.directory import default_run_dir, load_config
from byol_explore.settings.config import Config
from byol_explore.settings.parts import DistributedConfig
from byol_explore.settings.presets import checked, make_config

DESCRIPTION = """Train an agent and leave everything in a run directory. For example:

  byol-explore train                               the default: solve rooms-6 by curiosity
  byol-explore train --method none                 the same agent without curiosity
  byol-explore train --env MiniGrid-DoorKey-8x8 --seed 3 --run-dir runs/doorkey
  byol-explore train --env rooms-4,rooms-6 --curiosity.mixing 0.1
  byol-explore train --preset atari-small --regime intrinsic      Montezuma's Revenge by curiosity alone
  byol-explore train --env gymnasium:Acrobot-v1
  byol-explore train --resume --steps 8000000      go on where the default run stopped
  byol-explore train --distributed.coordinator 10.0.0.1:4711 --distributed.processes 2 --distributed.process 0
                                                   on two hosts together: the same on the other, as process 1
"""


@dataclass(frozen=True)
class TrainCommand:
    """Train an agent and leave everything in a run directory."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    run_dir: Path | None = None
    """Where the run is kept; default runs/<env>/<method>-seed<seed>."""
    resume: bool = False
    """Continue the run in the run directory from its newest whole checkpoint."""
    force: bool = False
    """Begin anew where a run is already: it is removed as soon as the new one can begin."""
    quiet: bool = False
    """Print nothing but errors."""


def run(arguments: Sequence[str]) -> int | None:
    command = parse_train(arguments)
    settings = command.config.distributed
    if settings.processes > 1 and not together.is_learner:
        checked(command.config)
        return together.watch_over(arguments, settings)
    with leaving_at_once():
        from byol_explore.run.training import train

    summary = train(command.config, command.run_dir, resume=command.resume, force=command.force, quiet=command.quiet)
    if not command.quiet and settings.process == 0:
        shown = _outcome(summary.data)
        print(f"done: {summary['steps']:,} steps in {summary['seconds']:.0f} s, {shown}; see {summary.run_dir}")


def _outcome(summary: dict[str, Any]) -> str:
    """How the last episodes went, or why that cannot be said."""
    episodes, success, value = (summary[name] for name in ("episodes", "success_rate", "return_mean"))
    if episodes == 0:
        return "no episode ended"
    if value is None:
        ended = "1 episode ended" if episodes == 1 else f"{episodes:,} episodes ended"
        return f"success not known yet ({ended}, others that began no later still run)"
    return f"{'no success defined' if success is None else f'success {success:.3f}'}, return {value:.3f}"


def parse_train(arguments: Sequence[str]) -> TrainCommand:
    """What the words ask for: preset, ablation or the run that is resumed decide what all others default to."""
    look = _first_look(arguments)
    base = look.base_config()
    command = parse("train", TrainCommand, arguments, default=TrainCommand(base), description=DESCRIPTION)
    if look.env_settings is None:
        return command
    words = merged(base.env_settings, command.config.env_settings)
    return dataclasses.replace(command, config=dataclasses.replace(command.config, env_settings=words))


class _FirstLook(NamedTuple):
    """The few options that decide what all others default to."""

    preset: str
    ablation: str
    method: str
    env: str | None
    env_settings: list[str] | None
    algorithm: str | None
    seed: int | None
    regime: str | None
    run_dir: Path | None
    resume: bool
    process: int

    def base_config(self) -> Config:
        """A run's own configuration when it is resumed, else preset and ablation.

        Where several processes resume it together, the first reads it and tells the others.
        """
        if not self.resume or self.process > 0:
            changes = {} if self.env is None else {"env": self.env}
            return make_config(self.preset, self.ablation, self.method, **changes)
        given = {
            name: value for name in ("env", "algorithm", "seed", "regime") if (value := getattr(self, name)) is not None
        }
        guess = dataclasses.replace(make_config(self.preset, self.ablation, self.method), **given)
        config = load_config(self.run_dir or default_run_dir(guess))
        return dataclasses.replace(config, distributed=DistributedConfig())  # is said anew each time


def _first_look(arguments: Sequence[str]) -> _FirstLook:
    parser = OneLineParser(add_help=False, allow_abbrev=False)
    for name in ("preset", "ablation", "method"):
        default = {"preset": "grid", "ablation": "none", "method": "byol-explore"}[name]
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--env")
    parser.add_argument("--env-settings", "--env_settings", nargs="*")
    parser.add_argument("--algorithm")
    parser.add_argument("--regime")
    parser.add_argument("--seed", type=whole_number)
    parser.add_argument("--run-dir", "--run_dir", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--distributed.process", dest="process", type=whole_number, default=0)
    try:
        found, _ = parser.parse_known_args(list(arguments))
    except UserError:  # the full parser will explain
        found, _ = parser.parse_known_args([])
    return _FirstLook(**vars(found))
