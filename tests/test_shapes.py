"""Every annotated shape of the equations, checked while a learner step of each kind of action is traced."""

import subprocess
import sys
from pathlib import Path

CHECKED_STEP = """
import jaxtyping

hook = jaxtyping.install_import_hook(["byol_explore.ops"], "beartype.beartype")
with hook:
    import jax
    from builders import make_spec, make_trajectory, small_actor, small_config

    from byol_explore.agent.learner import Learner
    from byol_explore.agent.state import Batch
    from byol_explore.ops import world_model

for action in ("discrete", "continuous", "hybrid"):
    spec = make_spec("vector", action)
    learner = Learner(small_config(), spec, tasks=2)
    state = jax.eval_shape(learner.init, jax.random.key(0))
    jax.eval_shape(learner.update, state, Batch(make_trajectory(spec, small_actor(spec))))
try:
    world_model.mean_over_horizon(jax.numpy.zeros((4, 3)), jax.numpy.ones((4, 2), bool))
except jaxtyping.TypeCheckError:
    print("checked")
"""


def test_shapes_of_a_learner_step_are_as_annotated() -> None:
    """The last call breaks an annotation on purpose, to show that the check is on."""
    result = subprocess.run(
        [sys.executable, "-c", CHECKED_STEP], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert result.stdout.strip() == "checked", result.stderr
