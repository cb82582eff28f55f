"""Networks of another run to start from."""

from pathlib import Path

from byol_explore.errors import UserError
from byol_explore.learner_state import LearnerState
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.run.directory import load_config


def take_networks(learner: LearnerState, run_dir: Path) -> LearnerState:
    """With the networks and statistics of another run's newest checkpoint; optimizers and duals start anew."""
    load_config(run_dir)  # says so if there is no run, and asks before anything of it is used
    checkpoints = Checkpoints(run_dir / "checkpoints")
    if not checkpoints.steps():
        raise UserError(f"init_from: {run_dir} has no checkpoint to start from")
    try:
        parts = {
            name: checkpoints.restore(getattr(learner, name), part=f"learner.{name}").state
            for name in ("online", "curiosity", "acting", "statistics")
        }
    except UserError as error:
        raise UserError(f"init_from: {error}") from error
    return learner._replace(**parts)
