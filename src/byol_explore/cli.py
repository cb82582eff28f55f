"""The command line: `byol-explore train | evaluate | presets | envs`."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import tyro
from rich.console import Console
from rich.table import Table

from byol_explore.config import Config, default_run_dir
from byol_explore.errors import DivergenceError, UserError, unknown
from byol_explore.interrupts import Interrupts, leaving_at_once

TRAIN_DESCRIPTION = """Train an agent and leave everything in a run directory. For example:

  byol-explore train                               the default: solve rooms-6 by curiosity
  byol-explore train --method none                 the same agent without curiosity
  byol-explore train --env MiniGrid-DoorKey-8x8 --seed 3 --run-dir runs/doorkey
  byol-explore train --env rooms-4,rooms-6 --curiosity.mixing 0.1
  byol-explore train --preset atari-small --regime intrinsic      Montezuma's Revenge by curiosity alone
  byol-explore train --preset atari --env atari:hard10            ten games, a run each, on accelerators
  byol-explore train --env gymnasium:Acrobot-v1
  byol-explore train --resume --steps 8000000      go on where the default run stopped
"""


@dataclass(frozen=True)
class TrainCommand:
    """Train an agent and leave everything in a run directory."""

    config: Annotated[Config, tyro.conf.arg(name="")]
    run_dir: Path | None = None
    """Where the run is kept; default runs/<env>/<method>-seed<seed>."""
    resume: bool = False
    """Continue the run in the run directory from its newest whole checkpoint."""
    quiet: bool = False
    """Print nothing but errors."""


@dataclass(frozen=True)
class EvaluateCommand:
    """Play episodes with a trained agent, greedily and by sampling, and report success and return."""

    run: tyro.conf.Positional[Path]
    """A run directory."""
    episodes: int | None = None
    """Episodes per task and per way of acting; by default 200, or as in the paper 10 for Atari and Gymnasium."""
    checkpoint: str = "last"
    """last, best, or the step of a checkpoint."""
    seed: int = 0
    """Of the episodes."""
    gif: Path | None = None
    """Also write a film of sampled episodes here."""
    json: bool = False
    """Print JSON instead of a table."""


def train_command(arguments: Sequence[str]) -> None:
    with leaving_at_once():
        from byol_explore.run_directory import load_config
        from byol_explore.training import train

    first = _first_look(arguments)
    default = first.base_config(load_config)
    command = _parse("train", TrainCommand, arguments, default=TrainCommand(default), description=TRAIN_DESCRIPTION)
    if command.config.env == "atari:hard10":
        _train_hard10(command)
        return
    summary = train(command.config, command.run_dir, resume=command.resume, quiet=command.quiet)
    if not command.quiet:
        success = summary["success_rate"]
        shown = "no episode ended" if success is None else f"success {success:.3f}, return {summary['return_mean']:.3f}"
        print(f"done: {summary['steps']:,} steps in {summary['seconds']:.0f} s, {shown}; see {summary.run_dir}")


def _train_hard10(command: TrainCommand) -> None:
    from byol_explore.hard10 import train_hard10

    scores = train_hard10(command.config, command.run_dir, resume=command.resume, quiet=command.quiet)
    if command.quiet:
        return
    table = Table(title="best evaluation of each game")
    for column in ("game", "score", "human-normalised (%)", "clipped (%)", "rooms found"):
        table.add_column(column)
    for game, entry in scores["games"].items():
        numbers = ("score", "human_normalized", "clipped")
        shown = ["-" if entry[name] is None else f"{entry[name]:.1f}" for name in numbers]
        table.add_row(game, *shown, "-" if entry["rooms_found"] is None else str(entry["rooms_found"]))
    Console().print(table)


def evaluate_command(arguments: Sequence[str]) -> None:
    with leaving_at_once():
        from byol_explore.evaluation.episodes import evaluate

    command = _parse("evaluate", EvaluateCommand, arguments)
    errors = Console(stderr=True)
    with errors.status("playing") as status:  # only on a terminal
        report = evaluate(
            command.run, episodes=command.episodes, checkpoint=command.checkpoint, seed=command.seed,
            gif=command.gif, progress=lambda what, ended: status.update(f"{what}: {ended} episodes ended"),
        )  # fmt: skip
    for name in report["damaged_checkpoints"]:
        print(f"skipped a damaged checkpoint: {name}", file=sys.stderr)
    if command.json:
        print(json.dumps(report, indent=2))
        return
    table = Table(title=f"{report['run']} after {report['checkpoint_steps']:,} steps, {report['episodes']} episodes")
    scored = any("human_normalized" in result for modes in report["tasks"].values() for result in modes.values())
    for column in ("task", "acting", "success (95%)", "return (95%)", "length", *(["human %"] if scored else [])):
        table.add_column(column)
    for task, modes in report["tasks"].items():
        for mode, result in modes.items():
            table.add_row(task, mode, _interval(result["success_rate"]), _interval(result["return"]),
                          f"{result['length_mean']:.1f}", *_percent(result.get("human_normalized")))  # fmt: skip
    Console().print(table)


def presets_command(arguments: Sequence[str]) -> None:
    from byol_explore.presets import ABLATIONS, PRESETS

    _no_arguments("presets", "List presets and ablations.", arguments)
    for title, entries in (("presets", PRESETS), ("ablations", ABLATIONS)):
        table = Table(title=title, title_justify="left")
        table.add_column("name")
        table.add_column("what it is")
        for name, entry in entries.items():
            table.add_row(name, entry.description)
        Console().print(table)


def envs_command(arguments: Sequence[str]) -> None:
    from byol_explore.envs.registry import env_families

    _no_arguments("envs", "List environments.", arguments)
    for family, names in env_families().items():
        print(f"{family}:")
        for name in names:
            print(f"  {name}")


class Command(NamedTuple):
    run: Callable[[Sequence[str]], None]
    description: str


COMMANDS = {
    "train": Command(train_command, "train an agent into a run directory"),
    "evaluate": Command(evaluate_command, "play episodes with a trained agent"),
    "presets": Command(presets_command, "list presets and ablations"),
    "envs": Command(envs_command, "list environments"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for a user's mistake, 3 for divergence, 128 + n for a signal."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_overview()
        return 0
    try:
        if arguments[0] not in COMMANDS:
            raise unknown("command", arguments[0], list(COMMANDS))
        COMMANDS[arguments[0]].run(arguments[1:])
        sys.stdout.flush()
    except SystemExit as stop:  # after --help
        return int(stop.code or 0)
    except (UserError, DivergenceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except Interrupts.Stopped as stopped:
        return stopped.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough; nothing is left to be flushed into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a directory that may not be written
        print(f"error: {error}", file=sys.stderr)
        return UserError.exit_code
    return 0


class _FirstLook(NamedTuple):
    """The few options that decide what all others default to."""

    preset: str
    ablation: str
    method: str
    env: str | None
    seed: int | None
    regime: str | None
    run_dir: Path | None
    resume: bool

    def base_config(self, load_config: Callable[[Path], Config]) -> Config:
        """A run's own configuration when it is resumed, else preset and ablation."""
        from byol_explore.presets import make_config

        if not self.resume:
            return make_config(self.preset, self.ablation, self.method)
        given = {name: value for name in ("env", "seed", "regime") if (value := getattr(self, name)) is not None}
        guess = dataclasses.replace(make_config(self.preset, self.ablation, self.method), **given)
        return load_config(self.run_dir or default_run_dir(guess))


def _first_look(arguments: Sequence[str]) -> _FirstLook:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for name in ("preset", "ablation", "method"):
        default = {"preset": "grid", "ablation": "none", "method": "byol-explore"}[name]
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--env")
    parser.add_argument("--regime")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--run-dir", "--run_dir", type=Path)
    parser.add_argument("--resume", action="store_true")
    try:
        found, _ = parser.parse_known_args(list(arguments))
    except UserError:  # the full parser will explain
        found, _ = parser.parse_known_args([])
    return _FirstLook(**vars(found))


class _Parser(argparse.ArgumentParser):
    """Whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def _no_arguments(name: str, description: str, arguments: Sequence[str]) -> None:
    _Parser(prog=f"byol-explore {name}", description=description).parse_args(list(arguments))


def _parse(name: str, kind: type, arguments: Sequence[str], **settings: Any) -> Any:
    """A command from its arguments; what tyro says about wrong ones, in one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, args=list(arguments), prog=f"byol-explore {name}", **settings)
    except SystemExit as stop:
        if stop.code:
            raise UserError(_unboxed(said.getvalue())) from None
        raise


def _unboxed(box: str) -> str:
    """The complaint in tyro's box, and the options that it thinks were meant; the title comes before it."""
    text = re.sub(r"\x1b\[[\d;]*m|[│╭╮╰╯]", "", box)
    _, complaint, *rest = re.split(r"[─-]{3,}", text)
    meant = re.findall(r"^ *(--[\w.-]+)", "".join(part for part in rest if "Perhaps you meant" in part), re.MULTILINE)
    return " ".join(complaint.split()) + (f"; perhaps you meant {' or '.join(meant)}" if meant else "")


def _interval(interval: dict[str, float]) -> str:
    return f"{interval['mean']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def _percent(value: float | None) -> list[str]:
    return [] if value is None else [f"{value:.1f}"]


def _print_overview() -> None:
    print("byol-explore: curiosity-driven reinforcement learning by bootstrapped latent prediction\n")
    print("commands (each explains itself with --help):")
    for name, command in COMMANDS.items():
        print(f"  byol-explore {name:<9} {command.description}")
    print("\ntry: byol-explore train, then byol-explore evaluate runs/rooms-6/byol-explore-seed0 --gif episodes.gif")


if __name__ == "__main__":
    sys.exit(main())
