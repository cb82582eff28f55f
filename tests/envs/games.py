"""Atari emulators for tests."""

from typing import Any

import numpy as np
from ale_py import ALEInterface, roms

from byol_explore.envs.atari_worker import RAM_SIZE, SIZE, Emulator
from byol_explore.envs.families import AtariSettings

NOOP, RIGHT, LEFT = 0, 3, 4  # of the full set
X, LIVES = 42, 58  # addresses in Montezuma's RAM


def emulator(game: str = "montezuma_revenge", seed: int = 1, **settings: Any) -> Emulator:
    chosen = AtariSettings(**{"max_noops": 0, **settings})
    observation = np.zeros((SIZE, SIZE, chosen.frame_stack), np.uint8)
    return Emulator(game, chosen, seed, observation, np.zeros(RAM_SIZE, np.uint8))


def bare(game: str = "montezuma_revenge") -> ALEInterface:
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(roms.get_rom_path(game)))
    return ale


def random_actions(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 18, count).tolist()


def memories(game: Emulator, actions: list[int]) -> np.ndarray:
    """Return the RAM [T, 128] after each action of a new episode."""
    game.reset()
    rams = []
    for action in actions:
        game.step(action)
        rams.append(game.ram.copy())
    return np.stack(rams)
