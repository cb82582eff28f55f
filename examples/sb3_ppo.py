"""PPO of Stable-Baselines3 in rooms in a row, with curiosity or without.

    python examples/sb3_ppo.py --seed 0                 # with curiosity
    python examples/sb3_ppo.py --seed 0 --mixing 0      # PPO alone

The only reward is at the far end of the last room. The learning curve is written to a CSV file: environment steps, and
over the last 100 episodes the fraction that reached the end and the mean number of rooms entered.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import byol_explore
from byol_explore.integrations.sb3 import CuriosityCallback

MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))  # of row and column


class Rooms(gymnasium.Env[np.ndarray, int]):
    """Rooms of 5 x 5 in a row, with a door of one cell between neighbours. Observations are row and column, one-hot.

    An episode begins at the near end, and is truncated after 20 steps per room. Random actions reach the far end of six
    rooms in 17 of a billion episodes.
    """

    def __init__(self, rooms: int = 6, size: int = 5) -> None:
        self.size, self.width, self.limit = size, rooms * (size + 1) - 1, 20 * rooms
        self.doors = [(3 * room + 1) % size for room in range(rooms - 1)]  # rows
        self.observation_space, self.action_space = spaces.Box(0.0, 1.0, (size + self.width,)), spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.row, self.column, self.time, self.rooms = self.size // 2, 0, 0, 1
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        row, column = self.row + MOVES[action][0], self.column + MOVES[action][1]
        if 0 <= row < self.size and 0 <= column < self.width and self._is_free(row, column):
            self.row, self.column = row, column
        self.time, self.rooms = self.time + 1, max(self.rooms, self.column // (self.size + 1) + 1)
        reached = self.column == self.width - 1
        truncated = self.time == self.limit and not reached
        return self._observation(), float(reached), reached, truncated, {"rooms": self.rooms}

    def _is_free(self, row: int, column: int) -> bool:
        room, inside = divmod(column, self.size + 1)
        return inside < self.size or row == self.doors[room]

    def _observation(self) -> np.ndarray:
        one_hots = np.arange(self.size) == self.row, np.arange(self.width) == self.column
        return np.concatenate(one_hots).astype(np.float32)


class Curve(BaseCallback):
    """Writes a row of the learning curve per rollout."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.rows = path, []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        episodes = list(self.model.ep_info_buffer or ())
        if episodes:
            means = [np.mean([episode[name] for episode in episodes]) for name in ("r", "rooms")]
            self.rows.append((self.num_timesteps, *means))
        with self.path.open("w", newline="") as file:
            csv.writer(file).writerows([("steps", "success", "rooms"), *self.rows])


def train(arguments: argparse.Namespace) -> list[tuple[float, ...]]:
    """Train. Returns the rows of the learning curve."""
    venv = make_vec_env(
        Rooms, arguments.num_envs, seed=arguments.seed, env_kwargs={"rooms": arguments.rooms},
        monitor_kwargs={"info_keywords": ("rooms",)},
    )  # fmt: skip
    model = PPO(
        "MlpPolicy", venv, learning_rate=1e-3, n_steps=128, batch_size=256, n_epochs=4, ent_coef=0.01,
        seed=arguments.seed, device="cpu",
    )  # fmt: skip
    curve = Curve(arguments.curve)
    callbacks: list[BaseCallback] = [curve]
    if arguments.mixing:
        curiosity = byol_explore.Curiosity(
            model.observation_space, model.action_space, model.n_envs, arguments.method, seed=arguments.seed,
            settings={"epochs": 4},  # as many as PPO has
        )  # fmt: skip
        callbacks.append(CuriosityCallback(curiosity, arguments.mixing))
    model.learn(arguments.total_steps, callback=callbacks)
    return curve.rows


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="PPO with curiosity in rooms in a row")
    parser.add_argument("--rooms", type=int, default=6)
    parser.add_argument("--total-steps", type=int, default=200_000)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--mixing", type=float, default=0.01, help="0: PPO alone")
    parser.add_argument("--method", default="byol-explore")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--curve", type=Path, default=Path("curve.csv"))
    torch.set_num_threads(1)
    steps, success, rooms = train(parser.parse_args(argv))[-1]
    print(f"{steps:,} steps; of the last 100 episodes {success:.0%} reached the end, {rooms:.1f} rooms entered each")


if __name__ == "__main__":
    main()
