"""Human play: keys to actions, the game, and the page in a browser."""

import base64
import io
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from threading import Thread
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys as Pressed

from byol_explore.cli.main import main
from byol_explore.envs.atari import joystick_keyboard
from byol_explore.envs.interface import Key, Keyboard, action_from_keys, default_keyboard, keyboard_for
from byol_explore.envs.registry import make_env
from byol_explore.errors import UserError
from byol_explore.evaluation.human_play import GameServer, HumanGame, render_page
from byol_explore.spaces import ActionSpec
from byol_explore.utils.local_server import ADDRESS
from report.browser import Browser, start_browser

HYBRID = ActionSpec(discrete=(3,), continuous=2)


def test_keys_combine_and_the_last_of_exclusive_keys_counts() -> None:
    keys = default_keyboard(HYBRID, "hybrid")
    action = action_from_keys(keys, HYBRID, ["Digit2", "KeyQ", "KeyW", "KeyS", "Digit1"])
    assert action.discrete.tolist() == [[1]]
    assert action.continuous.tolist() == [[1.0, 0.0]]
    assert action_from_keys(keys, HYBRID, ["KeyX"]).discrete.tolist() == [[0]]


def test_mouse_moves_its_two_dimensions_within_bounds() -> None:
    keys = Keyboard((Key(("KeyA",), "left", continuous=((0, -1.0),)),), mouse=((0, 0.1), (1, -0.1)))
    assert action_from_keys(keys, HYBRID, [], (5.0, 2.0)).continuous.tolist() == [[0.5, pytest.approx(-0.2)]]
    assert action_from_keys(keys, HYBRID, ["KeyA"], (500.0, -500.0)).continuous.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("held", "action"), [([], 0), (["ArrowUp"], 2), (["Space", "ArrowLeft"], 12), (["ArrowDown", "ArrowRight"], 8)]
)
def test_joystick_actions_combine_several_keys(held: list[str], action: int) -> None:
    assert action_from_keys(joystick_keyboard(), ActionSpec(discrete=(18,)), held).discrete.tolist() == [[action]]


def test_more_actions_than_keys_are_a_user_error() -> None:
    with pytest.raises(UserError, match="vast has more actions than keys"):
        default_keyboard(ActionSpec(discrete=(40,)), "vast")
    with pytest.raises(UserError, match="wide has 11 dimensions"):
        default_keyboard(ActionSpec(continuous=11), "wide")


def test_page_lists_the_keys_and_escapes_markup() -> None:
    page = render_page("<i>x", Keyboard((Key(("KeyW",), "go <b>on"),), mouse=((0, 1.0), (0, 1.0))))
    assert "<th>W</th><td>go &lt;b&gt;on</td>" in page
    assert "<title>&lt;i&gt;x</title>" in page
    assert "mouse" in page


@pytest.fixture(scope="module")
def game() -> Iterator[HumanGame]:
    game = HumanGame(make_env("corridor-2"), seed=3)
    yield game
    game.close()


@pytest.fixture(scope="module")
def served(game: HumanGame) -> Iterator[str]:
    with GameServer(game, 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{ADDRESS}:{server.server_port}"
        server.shutdown()


def post(url: str, body: Any, **headers: str) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/act", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def picture(view: dict[str, Any]) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(view["picture"].partition(",")[2]))))


def test_step_changes_the_picture_and_enter_starts_the_next_episode(game: HumanGame, served: str) -> None:
    first = game.view()
    turned = post(served, {"held": ["ArrowLeft"], "mouse": [0, 0]})
    assert (first["steps"], turned["steps"]) == (0, 1)
    assert not np.array_equal(picture(first), picture(turned))
    for _ in range(game.env.spec.max_steps):
        view = game.act(["ArrowLeft"])
    assert (view["over"], view["steps"]) == ("no success", game.env.spec.max_steps)
    assert game.act(["ArrowUp"])["steps"] == game.env.spec.max_steps
    again = game.act(["Enter"])
    assert (again["over"], again["steps"], again["return"]) == ("", 0, 0.0)


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        ([], {}, 400),
        ({"held": 5, "mouse": [0, 0]}, {}, 400),
        ({"held": [], "mouse": [0, float("inf")]}, {}, 400),
        ({"held": [], "mouse": [10**400, 0]}, {}, 400),
        ({"held": [], "mouse": [0, 0]}, {"Content-Length": "-1"}, 400),
        ({"held": [], "mouse": [0, 0]}, {"Host": "elsewhere.example"}, 403),
        ({"held": [], "mouse": [0, 0]}, {"Origin": "http://elsewhere.example"}, 403),
    ],
)
def test_invalid_requests_and_foreign_origins_are_rejected(
    game: HumanGame, served: str, body: Any, headers: dict[str, str], code: int
) -> None:
    before = game.view()["steps"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(served, body, **headers)
    assert refused.value.code == code
    assert game.view()["steps"] == before


def test_keys_move_the_agent_in_a_browser(served: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    browser: Browser = start_browser(tmp_path_factory.mktemp("profile"))
    try:
        browser.open(served)
        browser.wait(lambda: browser.run("return document.getElementById('picture').naturalWidth") > 100)
        assert browser.find("h1").text == "corridor-2"
        assert "go forward" in browser.find("table").text
        before, status = browser.find("#picture").get_attribute("src"), browser.find("#status").text
        browser.find("body").send_keys(Pressed.ARROW_RIGHT)
        browser.wait(lambda: browser.find("#status").text != status)
        assert browser.find("#picture").get_attribute("src") != before
        assert browser.console_messages() == []
    finally:
        browser.driver.quit()


def test_environment_without_key_bindings_gets_default_ones() -> None:
    assert keyboard_for(make_env("corridor-2")).keys[0].key_codes == ("ArrowUp",)
    assert [key.label for key in keyboard_for(make_env("probe:corridor")).keys][:2] == ["action 0", "action 1"]


def test_unknown_environment_is_an_error_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "nowhere-3"]) == 2
    assert "unknown environment 'nowhere-3'" in capsys.readouterr().err
