"""Key bindings of Hard-Eight against the decoded actions."""

import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore.envs.hard_eight.tasks import SPECS, keyboard_for
from byol_explore.envs.hard_eight.world import Control, decode_action
from byol_explore.envs.interface import action_from_keys
from byol_explore.types import Action


def control(actions: str, held: list[str], mouse: tuple[float, float] = (0.0, 0.0)) -> Control:
    action = action_from_keys(keyboard_for(actions, 3), SPECS[actions], held, mouse)
    return decode_action(Action(*(jnp.asarray(part[0]) for part in action)), actions)


@pytest.mark.parametrize("actions", SPECS)
@pytest.mark.parametrize(
    ("held", "field", "number"),
    [("KeyW", "move", 1.0), ("KeyS", "move", -1.0), ("ArrowRight", "turn_right", 1.0), ("ArrowUp", "look_down", -1.0),
     ("KeyR", "push_held", 1.0), ("Space", "grip", 1.0)],
)  # fmt: skip
def test_key_acts_the_same_in_both_action_sets(actions: str, held: str, field: str, number: float) -> None:
    done = control(actions, [held] if actions == "continuous" or held != "Space" else ["KeyW", held])
    assert float(getattr(done, field)) == number


def test_keys_and_mouse_combine() -> None:
    done = control("continuous", ["KeyW", "KeyA", "Space"], (10.0, -5.0))
    np.testing.assert_allclose(
        [done.move, done.strafe, done.turn_right, done.look_down], [1.0, -1.0, 0.4, -0.2], rtol=1e-6
    )
    assert bool(done.grip)
    assert keyboard_for("continuous", 3).steps_per_second == pytest.approx(5.0)
