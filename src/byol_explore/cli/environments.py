"""`byol-explore envs`, `presets` and `play`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from byol_explore.cli.parsing import parse, print_table
from byol_explore.config.presets import ABLATIONS, PRESETS
from byol_explore.envs.names import EnvSettings
from byol_explore.utils.interrupts import exit_on_sigint


@dataclass(frozen=True)
class EnvsCommand:
    """List environments, or the settings that they take."""

    settings: bool = False
    """List the settings of environments, which are options of train and play, with defaults."""


def run_envs(arguments: Sequence[str]) -> None:
    if parse("envs", EnvsCommand, arguments).settings:
        parse("train", EnvSettings, ["--help"], description="Settings of environments, as options of train and play.")
    from byol_explore.envs.registry import list_environments

    for family, names in list_environments().items():
        print(f"{family}:")
        for name in names:
            print(f"  {name}")


@dataclass(frozen=True)
class PresetsCommand:
    """List presets and ablations."""


def run_presets(arguments: Sequence[str]) -> None:
    parse("presets", PresetsCommand, arguments)
    presets = {name: PRESETS.get(name) for name in PRESETS.names()}
    for title, entries in (("presets", presets), ("ablations", ABLATIONS)):
        print_table(title, ("name", "what it is"), [(name, entry.description) for name, entry in entries.items()])


@dataclass(frozen=True)
class PlayCommand:
    """Play an environment by hand, in a browser on this machine; Ctrl-C ends it. For example:

    byol-explore play rooms-6
    byol-explore play atari:montezuma_revenge --port 8701
    byol-explore play hard-eight:wall-sensor
    """

    env: tyro.conf.Positional[str]
    """An environment that `byol-explore envs` lists, or an import path."""
    seed: int = 0
    """Seed of the episodes."""
    port: int = 8700
    """Port of the page, http://127.0.0.1:PORT; 0 chooses a free one."""
    settings: Annotated[EnvSettings, tyro.conf.arg(name="")] = field(default_factory=EnvSettings)


def run_play(arguments: Sequence[str]) -> None:
    command = parse("play", PlayCommand, arguments)
    with exit_on_sigint():
        from byol_explore.envs.registry import make_envs
        from byol_explore.evaluation.human_play import GameServer, HumanGame
        from byol_explore.utils.local_server import ADDRESS, bind_server

    [env] = make_envs([command.env], command.settings)
    game = HumanGame(env, command.seed)
    try:
        with bind_server(command.port, lambda port: GameServer(game, port)) as server:
            print(f"play {command.env} at http://{ADDRESS}:{server.server_port} (Ctrl-C ends it)", flush=True)
            server.serve_forever()
    finally:
        game.close()
