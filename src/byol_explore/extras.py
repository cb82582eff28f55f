"""Packages that only some uses need: they come with an extra, and whoever lacks one reads in one line what to install.

The core is enough for the equations, the networks, curiosity, the learner and the runtimes, on probe worlds and on
Gymnasium's environments. What needs more imports it where it is needed, inside `needed_by`.
"""

import contextlib
from collections.abc import Iterator

from byol_explore.errors import UserError

EXTRAS = {  # of each extra its modules, and the packages that these are installed from
    "train": {
        "imageio_ffmpeg": "imageio-ffmpeg",
        "matplotlib": "matplotlib",
        "orbax": "orbax-checkpoint",
        "PIL": "pillow",
        "rich": "rich",
        "tyro": "tyro",
        "xminigrid": "xminigrid",
    },
    "atari": {"ale_py": "ale-py"},
    "minigrid": {"minigrid": "minigrid"},
    "dm-hard-eight": {"dm_env_rpc": "dm-env-rpc"},
    "tensorboard": {"tensorboard": "tensorboard"},
    "wandb": {"wandb": "wandb"},
    "ray": {"ray": "ray"},
    "sb3": {"stable_baselines3": "stable-baselines3", "sb3_contrib": "sb3-contrib"},
    "torchrl": {"torchrl": "torchrl", "tensordict": "tensordict"},
}


@contextlib.contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Inside, packages of extras may be imported; a UserError names who lacks one, the package, and what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = _missing_module(error)
        for extra, packages in EXTRAS.items():
            if module in packages:
                raise UserError(f"{what} needs {packages[module]}: pip install 'byol-explore[{extra}]'") from None
        raise


def _missing_module(error: ModuleNotFoundError) -> str:
    """The outermost package that could not be imported; Gymnasium says it again in words of its own."""
    first = error.__cause__ if isinstance(error.__cause__, ModuleNotFoundError) else error
    return (first.name or "").partition(".")[0]
