"""The Atari emulator with its preprocessing, and the worker process that steps a few of them.

`ale-py` holds Python's lock while it emulates, and its own vector environment does not show the RAM, which says
where the agent is. So a batch is split over worker processes; observations, rewards and RAM lie in memory that they
share with their parent. This module imports NumPy and ale-py alone: a worker starts in a fraction of a second.
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

from byol_explore.envs.adapters.atari_settings import AtariSettings
from byol_explore.envs.adapters.processes import die_with_parent
from byol_explore.errors import one_line

HEIGHT, WIDTH = 210, 160
SIZE = 84
RAM_SIZE = 128
FULL_ACTION_SET = 18


def action_count(game: str, settings: AtariSettings) -> int:
    """Number of actions of a game."""
    return FULL_ACTION_SET if settings.full_action_set else len(_load(game, settings, 0).getMinimalActionSet())


def _load(game: str, settings: AtariSettings, seed: int) -> ALEInterface:
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", settings.sticky)
    ale.setInt("max_num_frames_per_episode", 0)  # counted here, from the first action on
    ale.loadROM(str(roms.get_rom_path(game)))
    return ale


def _column_weights() -> np.ndarray:
    """[40, 21]: every 40 columns become 21, each the mean of the area that it covers."""
    columns, outputs = 40, 21
    width = columns / outputs
    left = np.arange(outputs) * width
    overlap = np.minimum(left + width, np.arange(columns)[:, None] + 1) - np.maximum(left, np.arange(columns)[:, None])
    return (np.maximum(overlap, 0.0) / width).astype(np.float32)


_COLUMNS = _column_weights()


def shrink(frame: np.ndarray) -> np.ndarray:
    """A grey frame [210, 160] to [84, 84]: every pixel the mean of the area that it covers."""
    rows = frame.reshape(SIZE // 2, 5, WIDTH).astype(np.float32)  # 5 rows become 2; the middle one is halved
    pairs = np.empty((SIZE // 2, 2, WIDTH), np.float32)
    half = rows[:, 2] * 0.2
    pairs[:, 0] = (rows[:, 0] + rows[:, 1]) * 0.4 + half
    pairs[:, 1] = (rows[:, 3] + rows[:, 4]) * 0.4 + half
    small = pairs.reshape(-1, 40) @ _COLUMNS
    return np.rint(small, out=small).astype(np.uint8).reshape(SIZE, SIZE)


class Answer(NamedTuple):
    reward: float
    terminated: bool
    truncated: bool


class Emulator:
    """One game. `reset` and `step` write what is seen into `observation` and the memory into `ram`."""

    def __init__(self, game: str, settings: AtariSettings, seed: int, observation: np.ndarray, ram: np.ndarray) -> None:
        self.ale = _load(game, settings, seed)
        self.settings, self.observation, self.ram = settings, observation, ram
        self._actions = self.ale.getLegalActionSet() if settings.full_action_set else self.ale.getMinimalActionSet()
        self._random = np.random.default_rng(seed)
        self._frames = np.zeros((2, HEIGHT, WIDTH), np.uint8)
        self._lost_life = False
        self.count = self.lives = 0  # frames of this episode, lives left

    def reset(self) -> None:
        """A new episode; after a mere loss of life the game goes on where it is."""
        if not self._lost_life:
            self.ale.reset_game()
            self.count = 0
            for _ in range(self._random.integers(0, self.settings.noops + 1)):
                self.ale.act(0)
                if self.ale.game_over():
                    self.ale.reset_game()
        self._lost_life = False
        self.lives = self.ale.lives()
        self.ale.getScreenGrayscale(self._frames[0])
        self._frames[1] = self._frames[0]
        self.observation[:] = 0
        self._observe()

    def step(self, index: int) -> Answer:
        """An action, repeated; the picture is the maximum of its last two frames, as sprites flicker."""
        action, repeat, reward = self._actions[index], self.settings.action_repeat, 0.0
        over = limit = False
        for frame in range(repeat):
            reward += self.ale.act(action)
            self.count += 1
            over, limit = self.ale.game_over(), self.count >= self.settings.max_frames
            if frame >= repeat - 2 or over or limit:
                self.ale.getScreenGrayscale(self._frames[self.count % 2])
            if over or limit:
                if frame < repeat - 1:  # the frame before was not looked at
                    self._frames[1 - self.count % 2] = self._frames[self.count % 2]
                break
        self._observe()
        if self.settings.clip_rewards:
            reward = float(np.sign(reward))
        lives, self.lives = self.lives, self.ale.lives()
        self._lost_life = self.settings.life_loss and self.lives < lives and not (over or limit)
        return Answer(reward, over or self._lost_life, limit and not over)

    def _observe(self) -> None:
        if self.settings.stack > 1:
            self.observation[..., :-1] = self.observation[..., 1:]
        self.observation[..., -1] = shrink(np.maximum(self._frames[0], self._frames[1]))
        self.ale.getRAM(self.ram)


class Shared(NamedTuple):
    """The arrays of a batch, in memory that parent and workers share."""

    observation: np.ndarray  # [E, 84, 84, stack]
    action: np.ndarray  # [E]
    moving: np.ndarray  # [E] whether a step is one of this game too
    reward: np.ndarray  # [E]
    terminated: np.ndarray  # [E]
    truncated: np.ndarray  # [E]
    ram: np.ndarray  # [E, 128]
    screen: np.ndarray  # [210, 160, 3] of environment 0, when asked for

    @classmethod
    def layout(cls, num_envs: int, stack: int) -> list[tuple[tuple[int, ...], type]]:
        return [
            ((num_envs, SIZE, SIZE, stack), np.uint8), ((num_envs,), np.int32), ((num_envs,), np.bool_),
            ((num_envs,), np.float32), ((num_envs,), np.bool_), ((num_envs,), np.bool_),
            ((num_envs, RAM_SIZE), np.uint8), ((HEIGHT, WIDTH, 3), np.uint8),
        ]  # fmt: skip

    @classmethod
    def open(cls, descriptor: int, num_envs: int, stack: int) -> "Shared":
        """Map a file that is open in this process; whoever opens it first makes it large enough."""
        layout = cls.layout(num_envs, stack)
        sizes = [-(-int(np.prod(shape)) * np.dtype(dtype).itemsize // 64) * 64 for shape, dtype in layout]
        if os.fstat(descriptor).st_size < sum(sizes):
            os.ftruncate(descriptor, sum(sizes))
        memory = mmap.mmap(descriptor, sum(sizes))
        starts = np.cumsum([0, *sizes[:-1]])
        arrays = [np.ndarray(s, d, memory, int(o)) for (s, d), o in zip(layout, starts, strict=True)]
        return cls(*arrays)


RESET, STEP, SCREEN = b"r", b"s", b"p"
DONE, FAILED = b"d", b"f"


class Worker:
    """The environments first, ..., last - 1 of a batch."""

    def __init__(self, shared: Shared, game: str, settings: AtariSettings, seed: int, first: int, last: int) -> None:
        self.shared, self.envs = shared, range(first, last)
        self._ended = np.zeros(last, bool)
        self._emulators = {
            i: Emulator(game, settings, seed + i, shared.observation[i], shared.ram[i]) for i in self.envs
        }

    def obey(self, command: bytes) -> None:
        if command == SCREEN:
            self._emulators[0].ale.getScreenRGB(self.shared.screen)
            return
        for i in self.envs if command == RESET else [i for i in self.envs if self.shared.moving[i]]:
            if command == RESET or self._ended[i]:
                self._emulators[i].reset()
                answer = Answer(0.0, False, False)
            else:
                answer = self._emulators[i].step(int(self.shared.action[i]))
            self.shared.reward[i], self.shared.terminated[i], self.shared.truncated[i] = answer
            self._ended[i] = answer.terminated or answer.truncated


def main() -> None:
    """Obey the parent's commands, one byte each, until it closes the pipe."""
    order = json.loads(sys.argv[1])
    die_with_parent(order["parent"])
    commands, answers = sys.stdin.buffer.raw, os.fdopen(os.dup(1), "wb", buffering=0)  # pyright: ignore[reportAttributeAccessIssue]
    os.dup2(2, 1)  # whatever prints, prints elsewhere
    assert isinstance(commands, io.RawIOBase)
    try:
        settings = AtariSettings(**order["settings"])
        shared = Shared.open(order["memory"], order["num_envs"], settings.stack)
        worker = Worker(shared, order["game"], settings, order["seed"], order["first"], order["last"])
        while command := commands.read(1):
            worker.obey(command)
            answers.write(DONE)
    except (KeyboardInterrupt, BrokenPipeError):  # the parent has gone
        pass
    except Exception as error:
        answers.write(FAILED + f"{type(error).__name__}: {one_line(error)}\n{traceback.format_exc()}".encode())
        sys.exit(1)


if __name__ == "__main__":
    main()
