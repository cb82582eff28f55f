"""A game for a person: an environment on a page of this machine, played with its keys."""

import base64
import html
import io
import json
import math
import string
import threading
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jax
import numpy as np
from PIL import Image

from byol_explore.envs.host import AnyEnvironment, HostEnvironment
from byol_explore.envs.keys import Keys, Told, action_of, keys_of
from byol_explore.errors import UserError, one_line
from byol_explore.evaluation.recording import Inside
from byol_explore.evaluation.success import SuccessRule
from byol_explore.loopback import LocalHandler, LocalServer
from byol_explore.types import TimeStep

NEW = "Enter"  # begins a new episode when one is over
_WIDTH = 960  # pixels that a small picture is enlarged to
_MOST = 10_000  # bytes that a browser has to say


class Game:
    """One environment and its episodes; several requests wait for each other."""

    def __init__(self, env: AnyEnvironment, seed: int = 0) -> None:
        self.env, self.keys = env, keys_of(env)
        inside = not isinstance(env, HostEnvironment)
        self.batch = Inside(env, jax.random.key(seed)) if inside else env.batch(1, seed)
        self._rule = SuccessRule(env.spec.success_above)
        self._lock = threading.Lock()
        with self._lock:
            self._begin(self.batch.reset())

    def look(self) -> dict[str, Any]:
        """What the page shows."""
        with self._lock:
            return self._view()

    def act(self, held: Sequence[str], mouse: tuple[float, float] = (0.0, 0.0)) -> dict[str, Any]:
        """A step with these keys held; when the episode is over nothing happens until a new one is asked for."""
        with self._lock:
            if not self._is_over or NEW in held:
                self._step(held, mouse)
            return self._view()

    def close(self) -> None:
        with self._lock:
            self.batch.close()

    def _begin(self, timestep: TimeStep) -> None:
        self._timestep, self._steps, self._return, self._is_over = timestep, 0, 0.0, False

    def _step(self, held: Sequence[str], mouse: tuple[float, float]) -> None:
        timestep = self.batch.step(action_of(self.keys, self.env.spec.action, held, mouse))
        if timestep.is_first[0]:
            self._begin(timestep)
            return
        self._timestep, self._steps = timestep, self._steps + 1
        self._return += float(timestep.reward[0])
        self._is_over = bool(timestep.is_last[0])

    def _view(self) -> dict[str, Any]:
        return {
            "picture": _address(self.batch.render()),
            "steps": self._steps,
            "reward": float(self._timestep.reward[0]),
            "return": self._return,
            "over": self._outcome() if self._is_over else "",
            "goal": self._goal(),
        }

    def _outcome(self) -> str:
        told = np.asarray(self._timestep.success)[:1]
        verdict = int(self._rule.judge(np.asarray([self._return]), told)[0])
        return {1: "success", 0: "no success"}.get(verdict, "over")

    def _goal(self) -> str:
        if isinstance(self.env, Told) and isinstance(self.batch, Inside):
            return self.env.goal(self.batch.state)
        return self.keys.about


def _address(frame: Any) -> str:
    """A picture as an address that a page can show, enlarged by a whole number."""
    image = Image.fromarray(frame)
    factor = max(1, _WIDTH // image.width)
    image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, format="PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def render_hand_page(name: str, keys: Keys) -> str:
    """The page: a picture, what one has to do, and which key does what."""
    single = [key for key in keys.keys if len(key.codes) == 1]
    rows = [(key_name(key.codes[0]), key.words) for key in single]
    rows += [("mouse", "look around, after a click on the picture")] if keys.mouse else []
    rows += [(NEW, "a new episode, when one is over")]
    table = "".join(f"<tr><th>{html.escape(key)}</th><td>{html.escape(words)}</td></tr>" for key, words in rows)
    settings = {"perSecond": keys.per_second, "codes": sorted({code for key in keys.keys for code in key.codes})}
    page = resources.files("byol_explore.playing").joinpath("by_hand.html").read_text()
    return string.Template(page).substitute(
        title=html.escape(name), keys=table, settings=json.dumps({**settings, "mouse": keys.mouse is not None})
    )


def key_name(code: str) -> str:
    """A key as people call it."""
    arrows = {"ArrowUp": "↑", "ArrowDown": "↓", "ArrowLeft": "←", "ArrowRight": "→", "Space": "space"}
    return arrows.get(code) or code.removeprefix("Key").removeprefix("Digit")


class GameServer(LocalServer):
    """Gives the page and the game to browsers."""

    def __init__(self, game: Game, port: int) -> None:
        self.game = game
        super().__init__(_Handler, port)


class _Handler(LocalHandler):
    server: GameServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def get(self) -> None:
        game = self.server.game
        if self.path == "/":
            self.answer("text/html; charset=utf-8", render_hand_page(game.env.spec.name, game.keys).encode())
        elif self.path == "/look":
            self._tell(game.look())
        else:
            self.send_error(404)

    def post(self) -> None:
        if self.path != "/act":
            self.send_error(404)
            return
        try:
            length = min(int(self.headers.get("Content-Length", 0)), _MOST)
            held, mouse = _read(self.rfile.read(max(length, 0)))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            self.send_error(400)
            return
        try:
            self._tell(self.server.game.act(held, mouse))
        except UserError as error:  # an environment that failed
            self._tell({"failed": one_line(error)})

    def _tell(self, view: dict[str, Any]) -> None:
        self.answer("application/json", json.dumps(view).encode())


def _read(content: bytes) -> tuple[list[str], tuple[float, float]]:
    """Keys that are held, and how far the mouse was moved."""
    said = json.loads(content)
    held, (right, down) = [str(code) for code in said["held"]], said["mouse"]
    if not (math.isfinite(right) and math.isfinite(down)):
        raise ValueError("no distance")
    return held, (float(right), float(down))
