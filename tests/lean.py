"""Check what works without extras, and the messages where an extra is missing; fails otherwise.

`make test-lean` runs it where nothing but the core is installed. Where more is, `--hide` makes that impossible to
import, and programs are made but not compiled, which takes long.
"""

import sys

from byol_explore.utils.packages import EXTRAS

MODULES = [module for packages in EXTRAS.values() for module in packages]
HIDES = "--hide" in sys.argv
if HIDES:
    sys.modules |= dict.fromkeys(MODULES)

import contextlib
import dataclasses
import importlib.util
import io
import pkgutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import jax
import numpy as np

import byol_explore
from byol_explore.cli.main import main
from byol_explore.config.config import Config
from byol_explore.config.sections import CuriosityConfig, NetworkConfig, RuntimeConfig
from byol_explore.errors import UserError
from byol_explore.runtime.make import make_runtime, make_training_envs
from byol_explore.spaces import ActionSpec, Image, Vector
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.types import Action

TIME, BATCH = 4, 3
NETWORK = NetworkConfig(
    encoder_hidden=(8,), embedding_size=8, belief_size=8, policy_hidden=(8,), value_hidden=(8,), predictor_hidden=(8,),
    action_embedding_size=4, center_encoders=False,
)  # fmt: skip
CONFIG = Config(
    network=NETWORK, curiosity=CuriosityConfig(horizon=2),
    runtime=RuntimeConfig(num_envs=4, batch_size=4, sequence_length=4, rounds_per_dispatch=1, num_devices=1),
)  # fmt: skip
LIBRARY = ("ops", "networks", "curiosity", "dropin", "agent", "runtime", "config")
TRAIN, ATARI = "pip install 'byol-explore[train]'", "pip install 'byol-explore[atari]'"


def import_library() -> None:
    """Every module of it, not only those that are used below."""
    for name in LIBRARY:
        package = import_module(f"byol_explore.{name}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)


def use_curiosity(observation: Vector | Image) -> None:
    """Without an agent: learn from a rollout, then pay for it."""
    settings = {"network": dataclasses.asdict(NETWORK), "curiosity": {"horizon": 2}}
    curiosity = byol_explore.Curiosity(observation, ActionSpec(discrete=(2,)), BATCH, settings=settings)
    random = np.random.default_rng(0)
    seen = random.integers(0, 255, (TIME, BATCH, *observation.shape)).astype(observation.dtype)
    action = Action(random.integers(0, 2, (TIME - 1, BATCH, 1)), np.zeros((TIME - 1, BATCH, 0), np.float32))
    nothing = np.zeros((TIME - 1, BATCH), bool)
    if HIDES:
        jax.eval_shape(curiosity.state_shapes)
        return
    paid = [curiosity.learn(seen[:-1], action, seen[1:], nothing, nothing)[0]]
    curiosity.reset()
    paid.append(curiosity.reward(seen[:-1], action, seen[1:], nothing, nothing))
    for reward in paid:
        assert reward.shape == (TIME - 1, BATCH)
        assert np.all(np.isfinite(reward))
        assert np.any(reward > 0)


def use_runtime(env: str) -> None:
    """Act and learn once."""
    config = dataclasses.replace(CONFIG, env=env)
    runtime = make_runtime(config, make_training_envs(config))
    try:
        if not HIDES:
            _, output = runtime.dispatch(runtime.init(0))
            assert np.all(output.finite.flags)
            assert np.all(np.isfinite(output.metrics["loss"]))
    finally:
        runtime.close()


def said(function: Callable[..., object], *arguments: object) -> str:
    """The one line of a UserError."""
    try:
        function(*arguments)
    except UserError as error:
        return str(error)
    raise AssertionError(f"{arguments}: nothing is missing")


def check_messages() -> None:
    needs = {
        "rooms-6": f"xminigrid: {TRAIN}",
        "MiniGrid-DoorKey-8x8": f"xminigrid: {TRAIN}",
        "atari:pong": f"ale-py: {ATARI}",
        "gymnasium:minigrid:MiniGrid-Empty-5x5-v0": "minigrid: pip install 'byol-explore[minigrid]'",
    }
    for name, what in needs.items():
        assert (line := said(byol_explore.make_env, name)) == f"{name} needs {what}", line
    for name in ("train", "evaluate", "film", "load_agent", "run_study", "write_report"):
        line = said(getattr, byol_explore, name)
        assert line.startswith(f"byol_explore.{name} needs "), line
        assert line.endswith(f": {TRAIN}"), line
    line = said(Checkpoints(Path("runs/any")).restore, None)
    assert line == f"a checkpoint needs orbax-checkpoint: {TRAIN}", line
    for name, package in (("sb3", "stable-baselines3"), ("torchrl", "tensordict")):
        module = f"byol_explore.integrations.{name}"
        line = said(import_module, module)
        assert line == f"{module} needs {package}: pip install 'byol-explore[{name}]'", line
    families = byol_explore.list_environments()
    assert families["MiniGrid"] == [f"MiniGrid-NAME needs xminigrid: {TRAIN}"]
    assert families["Atari, others"] == [f"atari:NAME needs ale-py: {ATARI}"]


def check_command(*words: str) -> None:
    """One line and the exit code of a user's mistake."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert main(words) == 2, words
    assert errors.getvalue() == f"error: byol-explore {words[0]} needs tyro: {TRAIN}\n", errors.getvalue()


if __name__ == "__main__":
    there = [module for module in MODULES if importlib.util.find_spec(module)]
    assert not there, f"{', '.join(there)}: not of the core"
    import_library()
    use_curiosity(Vector(4))
    use_curiosity(Image(24, 24, 1))
    use_runtime("probe:corridor")
    use_runtime("gymnasium:CartPole-v1")
    check_messages()
    check_command("train", "--env", "rooms-6")
    check_command("envs")
    assert main(["--help"]) == 0
    print("the core is enough")
