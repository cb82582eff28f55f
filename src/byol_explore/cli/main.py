"""The command line: `byol-explore <command> ...`."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from byol_explore.errors import DivergenceError, UserError, unknown
from byol_explore.extras import needed_by
from byol_explore.interrupts import Interrupts
from byol_explore.settings.trust import FLAG, trust
from byol_explore.versions import versions

COMMANDS = {  # each is `run` in the module of that name beside this one
    "train": "train an agent into a run directory",
    "evaluate": "play episodes with a trained agent",
    "film": "film episodes before and after training",
    "doctor": "say whether a run's curiosity is healthy",
    "study": "run all runs of a study that are missing",
    "report": "make a page, figures and tables from runs",
    "watch": "keep that page fresh while runs go on",
    "thin": "copy runs without what a report does not need",
    "play": "play an environment by hand",
    "presets": "list presets and ablations",
    "envs": "list environments",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for a user's mistake, 3 for divergence, 128 + n for a signal.

    4 is a failure of an environment, 5 of another process that took part.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if FLAG in arguments:
        arguments.remove(FLAG)
        trust()
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # import paths may name what lies here
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_overview()
        return 0
    if arguments[0] == "--version":
        print(", ".join(f"{name} {version}" for name, version in versions().items()))
        return 0
    try:
        if arguments[0] not in COMMANDS:
            raise unknown("command", arguments[0], list(COMMANDS))
        with needed_by(f"byol-explore {arguments[0]}"):
            code = import_module(f"byol_explore.cli.{arguments[0]}").run(arguments[1:])
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
    return code or 0


def _print_overview() -> None:
    print("byol-explore: curiosity-driven reinforcement learning by bootstrapped latent prediction\n")
    print("commands (each explains itself with --help):")
    for name, description in COMMANDS.items():
        print(f"  byol-explore {name:<9} {description}")
    print("\n--version names the versions of the package, its commit, Python and JAX")
    print(f"{FLAG} lets any of them import code outside the package that a run directory or a study names")
    print("\ntry: byol-explore train, then byol-explore evaluate runs/rooms-6/byol-explore-seed0 --gif episodes.gif")


if __name__ == "__main__":
    sys.exit(main())
