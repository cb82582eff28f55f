"""Human play: a local web page that shows an environment and sends pressed keys as actions."""

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

from byol_explore.envs.interface import AnyEnvironment, HostEnvironment, Keyboard, action_from_keys, keyboard_for
from byol_explore.errors import UserError
from byol_explore.evaluation.rollouts import JitEnvOnHost, SuccessRule
from byol_explore.types import TimeStep
from byol_explore.utils.formatting import one_line
from byol_explore.utils.local_server import LoopbackHandler, LoopbackServer

NEW_EPISODE_KEY = "Enter"  # starts the next episode
_WIDTH = 960  # smaller frames are enlarged to at most this width in pixels
_MAX_REQUEST_BYTES = 10_000


class HumanGame:
    """One environment, played one step per request. Concurrent requests are served one after the other."""

    def __init__(self, env: AnyEnvironment, seed: int = 0) -> None:
        self.env, self.keys = env, keyboard_for(env)
        is_jit = not isinstance(env, HostEnvironment)
        self.batch = JitEnvOnHost(env, jax.random.key(seed)) if is_jit else env.make_vector_env(1, seed)
        self._rule = SuccessRule(env.spec.success_threshold)
        self._lock = threading.RLock()
        self._update(self.batch.reset())

    def view(self) -> dict[str, Any]:
        """Return the state that the page shows, as JSON data."""
        with self._lock:
            return {
                "picture": _data_url(self.batch.render()),
                "steps": self._steps,
                "reward": float(self._timestep.reward[0]),
                "return": self._return,
                "over": self._outcome() if self._timestep.is_last[0] else "",
                "goal": (self.batch.goal_text() if isinstance(self.batch, JitEnvOnHost) else "") or self.keys.goal,
            }

    def act(self, held: Sequence[str], mouse: tuple[float, float] = (0.0, 0.0)) -> dict[str, Any]:
        """Take one step and return the view. After the end of an episode, do nothing until `NEW_EPISODE_KEY` is held.

        Args:
          held: codes of the held keys.
          mouse: movement of the mouse in pixels, to the right and down.
        """
        with self._lock:
            if not self._timestep.is_last[0] or NEW_EPISODE_KEY in held:
                self._update(self.batch.step(action_from_keys(self.keys, self.env.spec.action, held, mouse)))
            return self.view()

    def close(self) -> None:
        with self._lock:
            self.batch.close()

    def _update(self, timestep: TimeStep) -> None:
        """Count steps and return of the current episode."""
        self._timestep = timestep
        if timestep.is_first[0]:
            self._steps, self._return = 0, 0.0
        else:
            self._steps, self._return = self._steps + 1, self._return + float(timestep.reward[0])

    def _outcome(self) -> str:
        [success] = self._rule.classify(np.array([self._return]), np.asarray(self._timestep.success)[:1]).tolist()
        return {1: "success", 0: "no success"}.get(success, "over")


def _data_url(frame: Any) -> str:
    """Return a frame as a PNG data URL, enlarged by an integer factor."""
    image = Image.fromarray(frame)
    factor = max(1, _WIDTH // image.width)
    image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, format="PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def render_page(name: str, keys: Keyboard) -> str:
    """Return the HTML page: the frame, the goal and a table of the keys."""
    single = [key for key in keys.keys if len(key.key_codes) == 1]
    rows = [(key_name(key.key_codes[0]), key.label) for key in single]
    rows += [("mouse", "look around, after a click on the picture")] if keys.mouse else []
    rows += [(NEW_EPISODE_KEY, "start a new episode after the end of one")]
    table = "".join(f"<tr><th>{html.escape(key)}</th><td>{html.escape(label)}</td></tr>" for key, label in rows)
    settings = {
        "perSecond": keys.steps_per_second,
        "codes": sorted({code for key in keys.keys for code in key.key_codes}),
        "mouse": keys.mouse is not None,
    }
    page = resources.files("byol_explore.evaluation").joinpath("human_play.html").read_text()
    return string.Template(page).substitute(title=html.escape(name), keys=table, settings=json.dumps(settings))


def key_name(code: str) -> str:
    """Return the name of a key from its code: "KeyW" is "W"."""
    arrows = {"ArrowUp": "↑", "ArrowDown": "↓", "ArrowLeft": "←", "ArrowRight": "→", "Space": "space"}
    return arrows.get(code) or code.removeprefix("Key").removeprefix("Digit")


class GameServer(LoopbackServer):
    """Serve the page and the game to browsers."""

    def __init__(self, game: HumanGame, port: int) -> None:
        self.game = game
        super().__init__(_Handler, port)


class _Handler(LoopbackHandler):
    server: GameServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def get(self) -> None:
        game = self.server.game
        if self.path == "/":
            self.send_content("text/html; charset=utf-8", render_page(game.env.spec.name, game.keys).encode())
        elif self.path == "/view":
            self._send_json(game.view())
        else:
            self.send_error(404)

    def post(self) -> None:
        if self.path != "/act":
            self.send_error(404)
            return
        try:
            length = min(int(self.headers.get("Content-Length", 0)), _MAX_REQUEST_BYTES)
            held, mouse = _parse_request(self.rfile.read(max(length, 0)))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            self.send_error(400)
            return
        try:
            self._send_json(self.server.game.act(held, mouse))
        except UserError as error:  # an environment that failed
            self._send_json({"failed": one_line(error)})

    def _send_json(self, view: dict[str, Any]) -> None:
        self.send_content("application/json", json.dumps(view).encode())


def _parse_request(content: bytes) -> tuple[list[str], tuple[float, float]]:
    """Return the codes of the held keys, and the movement of the mouse in pixels, right and down."""
    request = json.loads(content)
    held, (right, down) = [str(code) for code in request["held"]], request["mouse"]
    if not (math.isfinite(right) and math.isfinite(down)):
        raise ValueError("the movement of the mouse is not finite")
    return held, (float(right), float(down))
