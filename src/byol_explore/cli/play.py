"""`byol-explore play`: an environment for people, on a page of this machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from byol_explore.cli.parsing import parse
from byol_explore.interrupts import leaving_at_once


@dataclass(frozen=True)
class PlayCommand:
    """Play an environment by hand, in a browser on this machine; Ctrl-C ends it. For example:

    byol-explore play rooms-6
    byol-explore play atari:montezuma_revenge --port 8701
    byol-explore play hard-eight:wall-sensor
    """

    env: tyro.conf.Positional[str]
    """Any environment that `byol-explore envs` lists, or an import path."""
    seed: int = 0
    """Of the episodes."""
    port: int = 8700
    """Of the page: http://127.0.0.1:PORT; 0 is any that is free."""
    env_settings: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Settings of the environment; `byol-explore envs --settings` lists them."""


def run(arguments: Sequence[str]) -> None:
    command = parse("play", PlayCommand, arguments)
    with leaving_at_once():
        from byol_explore.envs.registry import make_env
        from byol_explore.loopback import ADDRESS, serve_at
        from byol_explore.playing.by_hand import Game, GameServer

    game = Game(make_env(command.env, command.env_settings), command.seed)
    try:
        with serve_at(command.port, lambda port: GameServer(game, port)) as server:
            print(f"play {command.env} at http://{ADDRESS}:{server.server_port} (Ctrl-C ends it)", flush=True)
            server.serve_forever()
    finally:
        game.close()
