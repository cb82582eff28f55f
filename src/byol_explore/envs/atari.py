"""Atari environments and their pool of worker processes."""

import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from ale_py import roms

from byol_explore.envs.atari_worker import DONE, RESET, SCREEN, SIZE, STEP, SharedBuffers, num_actions
from byol_explore.envs.families import HARD_GAMES, PROTOCOL_SETTINGS, PROTOCOLS, AtariSettings, RamLocation
from byol_explore.envs.host_vector import TimeStepBuilder, stack_positions
from byol_explore.envs.interface import EnvSpec, HostEnvironment, HostVectorEnv, Key, Keyboard, default_keyboard
from byol_explore.errors import UserError, did_you_mean
from byol_explore.spaces import ActionSpec, Image
from byol_explore.types import Action, TimeStep
from byol_explore.utils.processes import SIGNAL_SECONDS, available_cores, spawn_child, terminate_all, wait_exited

PREFIX = "atari:"


def atari_games() -> list[str]:
    """Return the games of which ale-py has the ROM."""
    return sorted(roms.get_all_rom_ids())


OTHER_GAMES = [game for game in atari_games() if game not in HARD_GAMES]


class Atari(HostEnvironment):
    """A game of the Arcade Learning Environment, emulated in worker processes."""

    protocols = PROTOCOLS

    def __init__(self, game: str, settings: AtariSettings | None = None, *, num_actors: int = 1) -> None:
        """Describe a game.

        Args:
          game: a name of `atari_games`.
          settings: see AtariSettings.
          num_actors: number of actors that share the cores of this machine.
        """
        if game == "hard10":
            raise UserError(
                "atari:hard10 is no environment: name one game, for example atari:alien, or train and score all ten "
                "with `byol-explore study atari-hard10`"
            )
        if game not in atari_games():
            hard = ", ".join(PREFIX + name for name in HARD_GAMES)
            raise UserError(
                f"unknown Atari game {game!r}{did_you_mean(game, atari_games())}; the ten hardest to explore are "
                f"{hard}; "
                "`byol-explore envs` lists all"
            )
        self.game, self.settings = game, settings or AtariSettings()
        self.num_workers = self.settings.num_workers or max(1, available_cores() // num_actors)
        info = HARD_GAMES.get(game)
        ram = (info and info.ram_location) or RamLocation()
        self.ram_addresses = np.asarray([*ram.room.values(), *ram.position.values()], np.intp)
        self.spec = EnvSpec(
            name=PREFIX + game,
            observation=Image(SIZE, SIZE, self.settings.frame_stack),
            action=ActionSpec(discrete=(num_actions(game, self.settings),)),
            max_steps=-(-self.settings.max_frames // self.settings.action_repeat),
            success_threshold=info.human if info else math.inf,
            reference_scores=(info.random, info.human) if info else None,
            room_fields=tuple(ram.room),
            position_fields=tuple(ram.position),
            room_layout=ram.layout,
        )

    @property
    def keys(self) -> Keyboard:
        """Return a joystick if the game has all actions, else one key per action."""
        is_full = self.spec.action.discrete == (len(JOYSTICK),)
        return joystick_keyboard() if is_full else default_keyboard(self.spec.action, self.spec.name)

    @property
    def protocol_settings(self) -> dict[str, float]:
        """Return the settings that decide how long and how hard a game is."""
        return {name: getattr(self.settings, name) for name in PROTOCOL_SETTINGS}

    def for_evaluation(self, protocol: str | None = None) -> "Atari":
        """Return the game under an evaluation protocol, on all cores."""
        return Atari(self.game, self.settings.for_evaluation(protocol))

    def make_vector_env(self, num_envs: int, seed: int) -> "AtariVectorEnv":
        return AtariVectorEnv([self], num_envs, seed)

    def make_random_task_env(self, others: Sequence[Any], num_envs: int, seed: int) -> "AtariVectorEnv | None":
        if any(not isinstance(other, Atari) or other.settings != self.settings for other in others):
            return None
        return AtariVectorEnv([self, *others], num_envs, seed)


class AtariVectorEnv(HostVectorEnv):
    """A batch that is split over worker processes.

    With several games, every element has an emulator of each and draws one per episode.
    """

    def __init__(self, games: Sequence[Atari], num_envs: int, seed: int) -> None:
        self.num_envs, env = num_envs, games[0]
        self._addresses = stack_positions([game.ram_addresses[None] for game in games], np)[0]  # [games, P]
        self._timesteps = TimeStepBuilder(num_envs)
        self._memory = tempfile.TemporaryFile(prefix="byol-explore-")  # noqa: SIM115
        descriptor = self._memory.fileno()
        self._shared = SharedBuffers.open(descriptor, num_envs, env.settings.frame_stack)
        count = min(env.num_workers, num_envs)
        bounds = [num_envs * i // count for i in range(count + 1)]
        arguments = {
            "games": [game.game for game in games], "settings": dataclasses.asdict(env.settings), "memory": descriptor,
            "num_envs": num_envs, "seed": seed % 2**30, "parent": os.getpid(),
        }  # fmt: skip
        single_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._workers: list[subprocess.Popen[bytes]] = []
        try:
            for first, last in itertools.pairwise(bounds):
                self._workers.append(
                    spawn_child(
                        [sys.executable, "-m", "byol_explore.envs.atari_worker",
                         json.dumps({**arguments, "first": first, "last": last})],
                        stdout=subprocess.PIPE, bufsize=0, pass_fds=(descriptor,), env={**os.environ, **single_thread},
                    )
                )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def reset(self) -> TimeStep:
        self._command_all(RESET)
        return self._timesteps.on_reset(self._shared.observation)

    def step(self, action: Action) -> TimeStep:
        shared = self._shared
        shared.action[:] = np.asarray(action.discrete)[:, 0]
        self._command_all(STEP)
        return self._timesteps.on_step(
            shared.observation, shared.reward, shared.terminated.copy(), shared.truncated.copy()
        )

    def task_ids(self) -> np.ndarray:
        return self._shared.task

    def positions(self) -> np.ndarray:
        return np.take_along_axis(self._shared.ram, self._addresses[self._shared.task], axis=1).astype(np.int32)

    def render(self) -> np.ndarray:
        self._send(self._workers[0], SCREEN)
        self._receive(self._workers[0])
        return self._shared.screen.copy()

    def close(self) -> None:
        self._end(patiently=True)

    def abort(self) -> None:
        self._end(patiently=False)

    def _end(self, *, patiently: bool) -> None:
        for worker in self._workers:
            if worker.stdin:
                worker.stdin.close()
        terminate_all(self._workers, patiently=patiently)
        for worker in self._workers:
            if worker.stdout:
                worker.stdout.close()
        self._memory.close()

    def _command_all(self, command: bytes) -> None:
        for worker in self._workers:
            self._send(worker, command)
        for worker in self._workers:
            self._receive(worker)

    def _send(self, worker: subprocess.Popen[bytes], command: bytes) -> None:
        assert worker.stdin is not None
        try:
            worker.stdin.write(command)
        except BrokenPipeError:
            self._receive(worker)  # raises the worker's own error
            raise

    def _receive(self, worker: subprocess.Popen[bytes]) -> None:
        assert worker.stdout is not None
        if worker.stdout.read(1) == DONE:
            return
        line, _, trace = (worker.stdout.read() or b"").decode(errors="replace").partition("\n")
        code = worker.returncode if wait_exited(worker, SIGNAL_SECONDS) else "unknown"
        error = RuntimeError(f"an Atari worker process failed: {line or f'it ended with code {code}'}")
        error.add_note(trace)
        raise error


_DIRECTIONS = ("up", "right", "left", "down", "up right", "up left", "down right", "down left")
JOYSTICK = ("", "fire", *_DIRECTIONS, *(f"{words} fire" for words in _DIRECTIONS))  # in the emulator's order
_CODES = {"up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight", "fire": "Space"}


def joystick_keyboard() -> Keyboard:
    """Return a keyboard of arrows and the space bar, in combinations; the game does not wait for keys."""
    held = [(action, words.split()) for action, words in enumerate(JOYSTICK) if words]
    keys = [Key(tuple(_CODES[word] for word in words), " ".join(words), ((0, action),)) for action, words in held]
    return Keyboard(tuple(keys), steps_per_second=15.0)
