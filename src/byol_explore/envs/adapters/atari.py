"""Atari games: `atari:montezuma_revenge` and every other game whose ROM comes with ale-py."""

import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
from ale_py import roms

from byol_explore.envs.adapters.atari_emulator import (
    DONE,
    RESET,
    SCREEN,
    SIZE,
    STEP,
    Shared,
    action_count,
)
from byol_explore.envs.adapters.atari_games import HARD_GAMES
from byol_explore.envs.adapters.atari_keys import JOYSTICK, keys_of_joystick
from byol_explore.envs.adapters.atari_settings import RULES, AtariSettings, available_cores
from byol_explore.envs.adapters.processes import TOLD_TO, end, has_ended, started
from byol_explore.envs.host import Boundaries
from byol_explore.envs.keys import Keys, keys_of_actions
from byol_explore.envs.protocols import EnvSpec
from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec, Image
from byol_explore.types import Action, TimeStep

PREFIX = "atari:"


def atari_games() -> list[str]:
    """All games that ale-py has a ROM for."""
    return sorted(roms.get_all_rom_ids())


class Atari:
    """A game of the Arcade Learning Environment, played in worker processes."""

    def __init__(self, game: str, settings: AtariSettings | None = None, *, workers: int = 0) -> None:
        if game not in atari_games():
            hard = ", ".join(PREFIX + name for name in HARD_GAMES)
            raise UserError(
                f"unknown Atari game {game!r}; the ten hardest to explore are {hard}; `byol-explore envs` lists all"
            )
        self.game, self.settings = game, settings or AtariSettings()
        self.rule_sets = RULES
        self.workers = workers or self.settings.workers or available_cores()
        facts = HARD_GAMES.get(game)
        place = facts.place if facts else None
        self.addresses = np.asarray([*place.room.values(), *place.position.values()] if place else [], np.intp)
        self._spec = EnvSpec(
            name=PREFIX + game,
            observation=Image(SIZE, SIZE, self.settings.stack),
            action=ActionSpec(discrete=(action_count(game, self.settings),)),
            max_steps=-(-self.settings.max_frames // self.settings.action_repeat),
            success_above=facts.human if facts else math.inf,
            scores=(facts.random, facts.human) if facts else None,
            rooms=tuple(place.room) if place else (),
            position=tuple(place.position) if place else (),
        )

    @property
    def spec(self) -> EnvSpec:
        return self._spec

    @property
    def keys(self) -> Keys:
        """How people play it: as with a joystick, where all of its positions are actions."""
        is_full = self.spec.action.discrete == (len(JOYSTICK),)
        return keys_of_joystick() if is_full else keys_of_actions(self.spec.action, self.spec.name)

    @property
    def rules(self) -> dict[str, float]:
        """What decides how long and how hard a game is."""
        return {name: getattr(self.settings, name) for name in ("noops", "sticky", "max_frames")}

    def for_evaluation(self, rules: str | None = None) -> "Atari":
        """The game as it is scored; all cores may work on it."""
        return Atari(self.game, self.settings.for_evaluation(rules))

    def batch(self, num_envs: int, seed: int) -> "AtariBatch":
        return AtariBatch(self, num_envs, seed)


class AtariBatch:
    """Games that are stepped together, each worker process with its share of them."""

    def __init__(self, env: Atari, num_envs: int, seed: int) -> None:
        self.num_envs = num_envs
        self._addresses = env.addresses
        self._boundaries = Boundaries(num_envs)
        self._memory = tempfile.TemporaryFile(prefix="byol-explore-")  # noqa: SIM115
        descriptor = self._memory.fileno()
        self._shared = Shared.open(descriptor, num_envs, env.settings.stack)
        count = min(env.workers, num_envs)
        bounds = [num_envs * i // count for i in range(count + 1)]
        order = {
            "game": env.game, "settings": dataclasses.asdict(env.settings), "memory": descriptor,
            "num_envs": num_envs, "seed": seed % 2**30, "parent": os.getpid(),
        }  # fmt: skip
        single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._workers: list[subprocess.Popen[bytes]] = []
        try:
            for first, last in itertools.pairwise(bounds):
                self._workers.append(
                    started(
                        subprocess.Popen,
                        [sys.executable, "-m", "byol_explore.envs.adapters.atari_emulator",
                         json.dumps({**order, "first": first, "last": last})],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, pass_fds=(descriptor,),
                        env={**os.environ, **single}, start_new_session=True,  # Ctrl-C is for the parent
                    )
                )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def reset(self) -> TimeStep:
        self._all_obey(RESET)
        return self._boundaries.first(self._shared.observation)

    def step(self, action: Action) -> TimeStep:
        return self.step_some(action, np.ones(self.num_envs, bool))

    def step_some(self, action: Action, moving: np.ndarray) -> TimeStep:
        """A step of the games in the mask [E]; the others stand still."""
        shared = self._shared
        shared.action[:], shared.moving[:] = np.asarray(action.discrete)[:, 0], moving
        self._all_obey(STEP)
        return self._boundaries.next(
            shared.observation, shared.reward, shared.terminated.copy(), shared.truncated.copy(), moving=moving
        )

    def places(self) -> np.ndarray:
        return self._shared.ram[:, self._addresses].astype(np.int32)

    def render(self) -> np.ndarray:
        self._tell(self._workers[0], SCREEN)
        self._hear(self._workers[0])
        return self._shared.screen.copy()

    def close(self) -> None:
        self._end(patiently=True)

    def abort(self) -> None:
        self._end(patiently=False)

    def _end(self, *, patiently: bool) -> None:
        """Workers end when the pipe to them is closed, or are made to."""
        for worker in self._workers:
            if worker.stdin:
                worker.stdin.close()
        end(self._workers, patiently=patiently)
        for worker in self._workers:
            if worker.stdout:
                worker.stdout.close()
        self._memory.close()

    def _all_obey(self, command: bytes) -> None:
        for worker in self._workers:
            self._tell(worker, command)
        for worker in self._workers:
            self._hear(worker)

    def _tell(self, worker: subprocess.Popen[bytes], command: bytes) -> None:
        assert worker.stdin is not None
        try:
            worker.stdin.write(command)
        except BrokenPipeError:
            self._hear(worker)  # which knows why
            raise

    def _hear(self, worker: subprocess.Popen[bytes]) -> None:
        assert worker.stdout is not None
        if worker.stdout.read(1) == DONE:
            return
        line, _, trace = (worker.stdout.read() or b"").decode(errors="replace").partition("\n")
        code = worker.returncode if has_ended(worker, TOLD_TO) else "unknown"
        error = RuntimeError(f"an Atari worker process failed: {line or f'it ended with code {code}'}")
        error.add_note(trace)
        raise error
