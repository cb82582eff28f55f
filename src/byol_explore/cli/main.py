"""The command line: `byol-explore <command> ...`."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from byol_explore.errors import DivergenceError, UserError, unknown_name
from byol_explore.registry import TRUST_FLAG, trust_external_code
from byol_explore.utils.interrupts import CommandInterrupt, SignalGuard, sigint_handler
from byol_explore.utils.packages import require_extra, versions

COMMANDS = {  # description, and module:function in this package
    "train": ("train an agent into a run directory", "train:run_train"),
    "evaluate": ("play episodes with a trained agent", "runs:run_evaluate"),
    "film": ("film episodes before and after training", "runs:run_film"),
    "doctor": ("check whether a run's curiosity is healthy", "runs:run_doctor"),
    "study": ("run all runs of a study that are missing", "study:run_study_command"),
    "report": ("make a page, figures and tables from runs", "report:run_report"),
    "watch": ("keep that page fresh while runs go on", "report:run_watch"),
    "publish": ("copy runs without what a report does not need", "report:run_publish"),
    "play": ("play an environment by hand", "environments:run_play"),
    "presets": ("list presets and ablations", "environments:run_presets"),
    "envs": ("list environments", "environments:run_envs"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0 is success, 2 a user's mistake, 3 divergence, 4 a failure of an environment, 5 the loss of another process, and
    128 + n signal n.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if TRUST_FLAG in arguments:
        arguments.remove(TRUST_FLAG)
        trust_external_code()
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # import paths may name modules here
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_overview()
        return 0
    if arguments[0] == "--version":
        print(", ".join(f"{name} {version}" for name, version in versions().items()))
        return 0
    interrupt = CommandInterrupt()
    try:
        with sigint_handler(interrupt):
            code = _run(arguments)
    except SystemExit as stop:  # after --help
        return int(stop.code or 0)
    except SignalGuard.StoppedBySignal as stopped:
        return stopped.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # a reader such as `head` has closed the pipe; nothing may be flushed into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # an OSError: a full disk, a read-only directory
        if interrupt.was_received:  # libraries turn the exception into others
            print("interrupted", file=sys.stderr)
            return 130
        if not isinstance(error, UserError | DivergenceError | OSError):
            raise
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", UserError.exit_code)
    return code or 0


def _run(arguments: Sequence[str]) -> int | None:
    """Run a command. Returns its exit code, or None for 0."""
    if arguments[0] not in COMMANDS:
        raise unknown_name("command", arguments[0], list(COMMANDS))
    with require_extra(f"byol-explore {arguments[0]}"):
        module, function = COMMANDS[arguments[0]][1].split(":")
        code = getattr(import_module(f"byol_explore.cli.{module}"), function)(arguments[1:])
    sys.stdout.flush()
    return code


def _print_overview() -> None:
    print("byol-explore: curiosity-driven reinforcement learning by bootstrapped latent prediction\n")
    print("commands (each explains itself with --help):")
    for name, (description, _) in COMMANDS.items():
        print(f"  byol-explore {name:<9} {description}")
    print("\n--version names the versions of the package, its commit, Python and JAX")
    print(f"{TRUST_FLAG} lets any of them import code outside the package that a run directory or a study names")
    print("\ntry: byol-explore train, then byol-explore evaluate runs/rooms-6/byol-explore-seed0 --video episodes.gif")


if __name__ == "__main__":
    sys.exit(main())
