"""`byol-explore train`."""

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from byol_explore.cli import supervised
from byol_explore.cli.parsing import parse
from byol_explore.config.config import Config
from byol_explore.config.presets import make_config, validate_config
from byol_explore.config.sections import DistributedConfig
from byol_explore.storage.run_directory import default_run_dir, load_config
from byol_explore.utils.interrupts import exit_on_sigint
from byol_explore.utils.validation import parse_int

DESCRIPTION = """Train an agent and leave everything in a run directory. For example:

  byol-explore train                               the default: solve rooms-6 by curiosity
  byol-explore train --method none                 the same agent without curiosity
  byol-explore train --env MiniGrid-DoorKey-8x8 --seed 3 --run-dir runs/doorkey
  byol-explore train --env rooms-4,rooms-6 --curiosity.mixing 0.1
  byol-explore train --preset atari-small --regime intrinsic      Montezuma's Revenge by curiosity alone
  byol-explore train --env gymnasium:Acrobot-v1
  byol-explore train --resume --steps 8000000      go on where the default run stopped
  byol-explore train --distributed.coordinator-address 10.0.0.1:4711 --distributed.num-processes 2 \\
      --distributed.process-id 0
                                                   on two hosts together: the same on the other, as process 1
"""


@dataclass(frozen=True)
class TrainCommand:
    """Train an agent and leave everything in a run directory."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    run_dir: Path | None = None
    """Where the run is kept; default runs/<env>/<method>-seed<seed>."""
    resume: bool = False
    """Continue the run in the run directory from its newest undamaged checkpoint."""
    accept_config: bool = False
    """With --resume: continue although config.json was changed or damaged since training wrote it, with what it says
    now, or if it cannot be read with the copy in the newest checkpoint."""
    force: bool = False
    """Begin anew in a directory that holds a run, which is moved to <run-dir>.old-<time> once the new one can begin."""
    quiet: bool = False
    """Print nothing but errors."""


def run_train(arguments: Sequence[str]) -> int | None:
    command = parse_train(arguments)
    settings = command.config.distributed
    if settings.num_processes > 1 and not supervised.is_supervised:
        if not (command.resume and settings.process_id > 0):  # else the settings are those of process 0's run
            validate_config(command.config)
        return supervised.supervise(arguments, settings)
    with exit_on_sigint():
        from byol_explore.training.train import train

    summary = train(
        command.config, command.run_dir, resume=command.resume, force=command.force, quiet=command.quiet,
        accept_config=command.accept_config,
    )  # fmt: skip
    if not command.quiet and settings.process_id == 0:
        outcome = _outcome(summary.data)
        print(f"done: {summary['steps']:,} steps in {summary['seconds']:.0f} s, {outcome}; see {summary.run_dir}")


def _outcome(summary: dict[str, Any]) -> str:
    """Describe the last episodes, or say why their success is not known."""
    episodes, success, value = (summary[name] for name in ("num_episodes", "success_rate", "return_mean"))
    if episodes == 0:
        return "no episode ended"
    if value is None:
        ended = "1 episode ended" if episodes == 1 else f"{episodes:,} episodes ended"
        return f"success not known yet ({ended}, others that began no later still run)"
    return f"{'no success defined' if success is None else f'success {success:.3f}'}, return {value:.3f}"


def parse_train(arguments: Sequence[str]) -> TrainCommand:
    """Parse arguments; preset, ablation or the resumed run decide the defaults of all other options."""
    base = _base_config(arguments)
    return parse("train", TrainCommand, arguments, default=TrainCommand(base), description=DESCRIPTION)


def _base_config(arguments: Sequence[str]) -> Config:
    """Return a run's own configuration when it is resumed, else that of preset and ablation."""
    options = _base_options(arguments)
    # If several processes resume a run, the first one reads it and sends it to the others.
    if not options.resume or options.process > 0:
        changes = {} if options.env is None else {"env": options.env}
        return make_config(options.preset, options.ablation, options.method, **changes)
    names = ("env", "algorithm", "seed", "regime")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    guess = dataclasses.replace(make_config(options.preset, options.ablation, options.method), **given)
    config = load_config(options.run_dir or default_run_dir(guess), accept_changes=options.accept_config)
    return dataclasses.replace(config, distributed=DistributedConfig())  # given anew each time


def _base_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options that decide the defaults of all others."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--preset", default="grid")
    parser.add_argument("--ablation", default="none")
    parser.add_argument("--method", default="byol-explore")
    for name in ("--env", "--algorithm", "--regime"):
        parser.add_argument(name)
    parser.add_argument("--seed", type=parse_int)
    parser.add_argument("--run-dir", "--run_dir", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--accept-config", "--accept_config", action="store_true")
    parser.add_argument("--distributed.process-id", dest="process", type=parse_int, default=0)
    try:
        return parser.parse_known_args(list(arguments))[0]
    except argparse.ArgumentError:  # `parse` explains it
        return parser.parse_args([])
