"""Keys of Hard-Eight, held against what actions stand for."""

import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.keys import action_of
from byol_explore.envs.worlds.hard_eight.controls import SPECS, Control, read
from byol_explore.envs.worlds.hard_eight.playing import keys_for
from byol_explore.types import Action


def control(actions: str, held: list[str], mouse: tuple[float, float] = (0.0, 0.0)) -> Control:
    action = action_of(keys_for(actions, 3), SPECS[actions], held, mouse)
    return read(Action(*(jnp.asarray(part[0]) for part in action)), actions)


@pytest.mark.parametrize("actions", SPECS)
@pytest.mark.parametrize(
    ("held", "name", "number"),
    [("KeyW", "move", 1.0), ("KeyS", "move", -1.0), ("ArrowRight", "turn", 1.0), ("ArrowUp", "look", -1.0),
     ("KeyR", "push", 1.0), ("Space", "grip", 1.0)],
)  # fmt: skip
def test_a_key_does_one_thing_in_both_action_sets(actions: str, held: str, name: str, number: float) -> None:
    done = control(actions, [held] if actions == "continuous" or held != "Space" else ["KeyW", held])
    assert float(getattr(done, name)) == number


def test_keys_and_the_mouse_go_together() -> None:
    done = control("continuous", ["KeyW", "KeyA", "Space"], (10.0, -5.0))
    np.testing.assert_allclose([done.move, done.strafe, done.turn, done.look], [1.0, -1.0, 0.4, -0.2], rtol=1e-6)
    assert bool(done.grip)
    assert keys_for("continuous", 3).per_second == pytest.approx(5.0)
