"""What actors are told when they are started, and what they answer when they join. Light: no JAX."""

import hashlib
import os
import socket
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import byol_explore
from byol_explore.envs.host import HostEnvironment
from byol_explore.envs.protocols import EnvSpec
from byol_explore.envs.registry import make_envs
from byol_explore.errors import UserError
from byol_explore.settings.config import Config

_PACKAGE = Path(byol_explore.__file__).parent


class Order(NamedTuple):
    """What an actor is to do: it makes its environments by their names."""

    config: Config
    number: int  # of the actor: its environments are those from there times its share
    rounds: int  # that the run had done when it went on: seeds are new then
    attempt: int = 0  # how often the actor has been started before in this session: also then
    spec: EnvSpec | None = None  # of the environments as the learner has made them
    paths: tuple[str, ...] = ()  # where the learner finds what import paths name, which may be there on other nodes too

    @property
    def num_envs(self) -> int:
        return self.config.runtime.num_envs // self.config.runtime.actors

    @property
    def entropy(self) -> list[int]:
        """What all its seeds are made from; those of the first attempt are those of a thread."""
        return [self.config.seed, self.number, self.rounds, *([self.attempt] if self.attempt else [])]


class Joined(NamedTuple):
    """Who an actor is."""

    host: str
    pid: int
    version: str  # of the package
    code: str  # fingerprint of its source
    address: tuple[str, int] = ("", 0)  # where it listens, if it does


class Failed(NamedTuple):
    """Instead of what an actor was asked for: one line that says why not."""

    why: str
    is_mistake: bool = False  # of the user: nothing is gained by another attempt


def find_what_the_learner_finds(order: Order) -> None:
    """Import paths lead to the same places, as far as these are there on this node."""
    sys.path.extend(path for path in order.paths if path not in sys.path and os.path.isdir(path))


def environments_for(order: Order) -> list[HostEnvironment]:
    """Those of an actor; a UserError if the same names mean something else on this node than where the learner is."""
    config = order.config
    envs: list[HostEnvironment] = make_envs(config.env_ids, config.env_settings, actors=config.runtime.actors)  # pyright: ignore[reportAssignmentType]
    mine, theirs = envs[0].spec, order.spec
    for what in ("observation", "action"):
        if theirs is not None and getattr(mine, what) != getattr(theirs, what):
            raise UserError(
                f"environment {mine.name!r} on {socket.gethostname()} has the {what} {getattr(mine, what)}, but for "
                f"the learner it is {getattr(theirs, what)}: install the same on every node"
            )
    return envs


def introduce() -> Joined:
    return Joined(socket.gethostname(), os.getpid(), byol_explore.__version__, code_of(_PACKAGE))


@cache
def code_of(package: Path) -> str:
    """A fingerprint of all source files of a package: equal wherever the same code is installed."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def difference(joined: Joined) -> str | None:
    """What about an actor's package is not as it is here, in words."""
    own = introduce()
    if joined[2:4] == own[2:4]:
        return None
    return (
        f"byol-explore on {joined.host} is {joined.version} (code {joined.code}), but here it is {own.version} "
        f"(code {own.code}): install the same on every node"
    )
