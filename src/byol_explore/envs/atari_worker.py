"""Atari emulator with preprocessing, and the worker process that steps several of them.

`ale-py` holds the GIL while it emulates, and its own vector environment hides the RAM, which has the agent's position.
A batch is therefore split over worker processes that share memory with their parent. This module imports only NumPy
and ale-py, so a worker starts in a fraction of a second.
"""

import io
import json
import mmap
import os
import sys
import traceback
from typing import NamedTuple

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms

from byol_explore.envs.families import AtariSettings
from byol_explore.utils.formatting import one_line
from byol_explore.utils.processes import kill_on_parent_exit

HEIGHT, WIDTH = 210, 160
SIZE = 84
RAM_SIZE = 128
FULL_ACTION_SET = 18


def num_actions(game: str, settings: AtariSettings) -> int:
    """Return the number of actions of a game."""
    return FULL_ACTION_SET if settings.full_action_set else len(_load(game, settings, 0).getMinimalActionSet())


def _load(game: str, settings: AtariSettings, seed: int) -> ALEInterface:
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", settings.sticky_action_prob)
    ale.setInt("max_num_frames_per_episode", 0)  # `Emulator` counts frames, from the first action on
    ale.loadROM(str(roms.get_rom_path(game)))
    return ale


def _column_weights() -> np.ndarray:
    """Return weights [40, 21] that average 40 columns to 21, by the area that each of the 21 covers."""
    columns, outputs = 40, 21
    width = columns / outputs
    left = np.arange(outputs) * width
    overlap = np.minimum(left + width, np.arange(columns)[:, None] + 1) - np.maximum(left, np.arange(columns)[:, None])
    return (np.maximum(overlap, 0.0) / width).astype(np.float32)


_COLUMNS = _column_weights()


def downsample(frame: np.ndarray) -> np.ndarray:
    """Shrink a grey frame [210, 160] uint8 to [84, 84] uint8; each pixel is the mean of the area that it covers."""
    rows = frame.reshape(SIZE // 2, 5, WIDTH).astype(np.float32)  # 5 rows become 2; the middle one is halved
    pairs = np.empty((SIZE // 2, 2, WIDTH), np.float32)
    half = rows[:, 2] * 0.2
    pairs[:, 0] = (rows[:, 0] + rows[:, 1]) * 0.4 + half
    pairs[:, 1] = (rows[:, 3] + rows[:, 4]) * 0.4 + half
    small = pairs.reshape(-1, 40) @ _COLUMNS
    return np.rint(small, out=small).astype(np.uint8).reshape(SIZE, SIZE)


class StepResult(NamedTuple):
    reward: float
    terminated: bool
    truncated: bool


class Emulator:
    """One game. `reset` and `step` write into `observation` and `ram`."""

    def __init__(self, game: str, settings: AtariSettings, seed: int, observation: np.ndarray, ram: np.ndarray) -> None:
        self.ale = _load(game, settings, seed)
        self.settings, self.observation, self.ram = settings, observation, ram
        self._actions = self.ale.getLegalActionSet() if settings.full_action_set else self.ale.getMinimalActionSet()
        self._random = np.random.default_rng(seed)
        self._frames = np.zeros((2, HEIGHT, WIDTH), np.uint8)
        self._lost_life = False
        self.count = self.lives = 0  # frames of this episode, lives left

    def reset(self) -> None:
        """Begin an episode. With `terminal_on_life_loss` the game continues after the loss of a life."""
        if not self._lost_life:
            self.ale.reset_game()
            self.count = 0
            for _ in range(self._random.integers(0, self.settings.max_noops + 1)):
                self.ale.act(0)
                if self.ale.game_over():
                    self.ale.reset_game()
        self._lost_life = False
        self.lives = self.ale.lives()
        self.ale.getScreenGrayscale(self._frames[0])
        self._frames[1] = self._frames[0]
        self.observation[:] = 0
        self._observe()

    def step(self, index: int) -> StepResult:
        """Repeat action number `index`. The observation is the maximum of the last two frames: sprites flicker."""
        action, repeat, reward = self._actions[index], self.settings.action_repeat, 0.0
        over = limit = False
        for frame in range(repeat):
            reward += self.ale.act(action)
            self.count += 1
            over, limit = self.ale.game_over(), self.count >= self.settings.max_frames
            if frame >= repeat - 2 or over or limit:
                self.ale.getScreenGrayscale(self._frames[self.count % 2])
            if over or limit:
                if frame < repeat - 1:  # the frame before was skipped
                    self._frames[1 - self.count % 2] = self._frames[self.count % 2]
                break
        self._observe()
        if self.settings.clip_rewards:
            reward = float(np.sign(reward))
        lives, self.lives = self.lives, self.ale.lives()
        self._lost_life = self.settings.terminal_on_life_loss and self.lives < lives and not (over or limit)
        return StepResult(reward, over or self._lost_life, limit and not over)

    def _observe(self) -> None:
        if self.settings.frame_stack > 1:
            self.observation[..., :-1] = self.observation[..., 1:]
        self.observation[..., -1] = downsample(np.maximum(self._frames[0], self._frames[1]))
        self.ale.getRAM(self.ram)


class SharedBuffers(NamedTuple):
    """Arrays of a batch in memory that parent and workers share."""

    observation: np.ndarray  # [E, 84, 84, stack]
    action: np.ndarray  # [E]
    task: np.ndarray  # [E] number of the game of the episode
    reward: np.ndarray  # [E]
    terminated: np.ndarray  # [E]
    truncated: np.ndarray  # [E]
    ram: np.ndarray  # [E, 128]
    screen: np.ndarray  # [210, 160, 3] of environment 0, on request

    @classmethod
    def open(cls, descriptor: int, num_envs: int, stack: int) -> "SharedBuffers":
        """Map an open file; enlarge it if it is too small."""
        types = (np.uint8, np.int32, np.int32, np.float32, np.bool_, np.bool_, np.uint8, np.uint8)
        shapes = ((num_envs, SIZE, SIZE, stack), *[(num_envs,)] * 5, (num_envs, RAM_SIZE), (HEIGHT, WIDTH, 3))
        dtype = np.dtype(list(zip(cls._fields, types, shapes, strict=True)), align=True)
        if os.fstat(descriptor).st_size < dtype.itemsize:
            os.ftruncate(descriptor, dtype.itemsize)
        arrays = np.ndarray((), dtype, mmap.mmap(descriptor, dtype.itemsize))
        return cls(*(arrays[name] for name in cls._fields))


_SEED_STRIDE = 1_000_003  # between the seeds of two games
RESET, STEP, SCREEN = b"r", b"s", b"p"
DONE, FAILED = b"d", b"f"


class Worker:
    """Steps the environments first, ..., last - 1 of a batch; each draws a game per episode."""

    def __init__(
        self, shared: SharedBuffers, games: list[str], settings: AtariSettings, seed: int, first: int, last: int
    ) -> None:
        self.shared, self.envs = shared, range(first, last)
        self._ended = np.zeros(last, bool)
        self._random = {i: np.random.default_rng([seed, i]) for i in self.envs}
        self._emulators = {
            i: [
                Emulator(game, settings, seed + _SEED_STRIDE * task + i, shared.observation[i], shared.ram[i])
                for task, game in enumerate(games)
            ]
            for i in self.envs
        }

    def handle(self, command: bytes) -> None:
        if command == SCREEN:
            self._emulator(0).ale.getScreenRGB(self.shared.screen)
            return
        for i in self.envs:
            if command == RESET or self._ended[i]:
                self.shared.task[i] = self._random[i].integers(len(self._emulators[i]))
                self._emulator(i).reset()
                result = StepResult(0.0, False, False)
            else:
                result = self._emulator(i).step(int(self.shared.action[i]))
            self.shared.reward[i], self.shared.terminated[i], self.shared.truncated[i] = result
            self._ended[i] = result.terminated or result.truncated

    def _emulator(self, index: int) -> Emulator:
        return self._emulators[index][self.shared.task[index]]


def main() -> None:
    """Execute commands of the parent, one byte each, until it closes the pipe."""
    arguments = json.loads(sys.argv[1])
    kill_on_parent_exit(arguments["parent"])
    commands, replies = sys.stdin.buffer.raw, os.fdopen(os.dup(1), "wb", buffering=0)  # pyright: ignore[reportAttributeAccessIssue]
    os.dup2(2, 1)  # what the emulator prints must not reach the pipe
    assert isinstance(commands, io.RawIOBase)
    try:
        settings = AtariSettings(**arguments["settings"])
        shared = SharedBuffers.open(arguments["memory"], arguments["num_envs"], settings.frame_stack)
        worker = Worker(shared, arguments["games"], settings, arguments["seed"], arguments["first"], arguments["last"])
        while command := commands.read(1):
            worker.handle(command)
            replies.write(DONE)
    except (KeyboardInterrupt, BrokenPipeError):  # the parent has gone
        pass
    except Exception as error:
        replies.write(FAILED + f"{type(error).__name__}: {one_line(error)}\n{traceback.format_exc()}".encode())
        sys.exit(1)


if __name__ == "__main__":
    main()
