"""An environment for people: keys become actions, and a page of this machine shows what comes of them."""

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
from byol_explore.envs.adapters.atari_keys import keys_of_joystick
from byol_explore.envs.keys import Key, Keys, action_of, keys_of, keys_of_actions
from byol_explore.envs.registry import make_env
from byol_explore.errors import UserError
from byol_explore.loopback import ADDRESS
from byol_explore.playing.by_hand import Game, GameServer, render_hand_page
from byol_explore.spaces import ActionSpec
from report.browser import Browser, start_browser

HYBRID = ActionSpec(discrete=(3,), continuous=2)


def test_keys_add_up_and_of_those_that_exclude_each_other_the_last_counts() -> None:
    keys = keys_of_actions(HYBRID, "hybrid")
    action = action_of(keys, HYBRID, ["Digit2", "KeyQ", "KeyW", "KeyS", "Digit1"])
    assert action.discrete.tolist() == [[1]]
    assert action.continuous.tolist() == [[1.0, 0.0]]
    assert action_of(keys, HYBRID, ["KeyX"]).discrete.tolist() == [[0]]


def test_a_mouse_moves_its_two_dimensions_within_bounds() -> None:
    keys = Keys((Key(("KeyA",), "left", continuous=((0, -1.0),)),), mouse=((0, 0.1), (1, -0.1)))
    assert action_of(keys, HYBRID, [], (5.0, 2.0)).continuous.tolist() == [[0.5, pytest.approx(-0.2)]]
    assert action_of(keys, HYBRID, ["KeyA"], (500.0, -500.0)).continuous.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("held", "action"), [([], 0), (["ArrowUp"], 2), (["Space", "ArrowLeft"], 12), (["ArrowDown", "ArrowRight"], 8)]
)
def test_a_joystick_has_positions_of_several_keys(held: list[str], action: int) -> None:
    assert action_of(keys_of_joystick(), ActionSpec(discrete=(18,)), held).discrete.tolist() == [[action]]


def test_what_has_more_actions_than_keys_is_refused() -> None:
    with pytest.raises(UserError, match="vast has more actions than keys"):
        keys_of_actions(ActionSpec(discrete=(40,)), "vast")
    with pytest.raises(UserError, match="wide has 11 dimensions"):
        keys_of_actions(ActionSpec(continuous=11), "wide")


def test_the_page_says_which_key_does_what_and_takes_no_markup() -> None:
    page = render_hand_page("<i>x", Keys((Key(("KeyW",), "go <b>on"),), mouse=((0, 1.0), (0, 1.0))))
    assert "<th>W</th><td>go &lt;b&gt;on</td>" in page
    assert "<title>&lt;i&gt;x</title>" in page
    assert "mouse" in page


@pytest.fixture(scope="module")
def game() -> Iterator[Game]:
    game = Game(make_env("corridor-2"), seed=3)
    yield game
    game.close()


@pytest.fixture(scope="module")
def served(game: Game) -> Iterator[str]:
    with GameServer(game, 0) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{ADDRESS}:{server.server_port}"
        server.shutdown()


def post(url: str, said: Any, **headers: str) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/act", json.dumps(said).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def picture(view: dict[str, Any]) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(view["picture"].partition(",")[2]))))


def test_a_step_changes_the_picture_and_an_episode_waits_for_a_new_one(game: Game, served: str) -> None:
    first = game.look()
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
    ("said", "headers", "code"),
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
def test_nonsense_and_others_do_nothing(game: Game, served: str, said: Any, headers: dict[str, str], code: int) -> None:
    before = game.look()["steps"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(served, said, **headers)
    assert refused.value.code == code
    assert game.look()["steps"] == before


def test_in_a_browser_keys_move_the_agent_and_the_page_says_what_they_do(
    served: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    browser: Browser = start_browser(tmp_path_factory.mktemp("profile"))
    try:
        browser.open(served)
        browser.wait(lambda: browser.run("return document.getElementById('picture').naturalWidth") > 100)
        assert browser.one("h1").text == "corridor-2"
        assert "go forward" in browser.one("table").text
        before, status = browser.one("#picture").get_attribute("src"), browser.one("#status").text
        browser.one("body").send_keys(Pressed.ARROW_RIGHT)
        browser.wait(lambda: browser.one("#status").text != status)
        assert browser.one("#picture").get_attribute("src") != before
        assert browser.complaints() == []
    finally:
        browser.driver.quit()


def test_an_environment_says_its_own_keys_or_has_some_made_up() -> None:
    assert keys_of(make_env("corridor-2")).keys[0].codes == ("ArrowUp",)
    assert [key.words for key in keys_of(make_env("probe:corridor")).keys][:2] == ["action 0", "action 1"]


def test_what_cannot_be_played_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "nowhere-3"]) == 2
    assert "unknown environment 'nowhere-3'" in capsys.readouterr().err
