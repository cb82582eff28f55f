"""Environments by name, and combinations of tasks for one agent."""

import jax
import pytest

from byol_explore.envs.families import HARD_GAMES
from byol_explore.envs.registry import list_environments, make_env, make_envs, register_env
from byol_explore.envs.vector import VectorEnv
from byol_explore.errors import UserError
from byol_explore.spaces import Grid

SIZED = "grid worlds of any size N"
ORIGINAL = "DM-HARD-8, the original (docs/dm-hard-eight.md)"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "corridor",
        "probe:nothing",
        "rooms-",
        "rooms-x",
        "rooms-06",
        "rooms-٦",
        "MiniGrid-Nothing",
        "XLand-MiniGrid-R1-10x10",
        "rooms-N",
    ],
)
def test_unknown_names_are_named(name: str) -> None:
    with pytest.raises(UserError, match=f"unknown environment '{name}'.*probe:corridor"):
        make_env(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("room-6", "rooms-6"),
        ("noisyrooms-3", "noisy-rooms-3"),
        ("room-600", "rooms-50"),
        ("rooms", "rooms-2"),
        ("minigrid-doorkey-8x8", "MiniGrid-DoorKey-8x8"),
        ("probe:memry", "probe:memory"),
        ("atari:montezuma", "montezuma_revenge"),
    ],
)
def test_most_similar_name_is_suggested(name: str, meant: str) -> None:
    with pytest.raises(UserError, match=rf"^unknown .* \(did you mean {meant}\?\); "):
        make_env(name)


@pytest.mark.parametrize("name", ["rooms-0", "rooms-1", "rooms-51"])
def test_number_of_rooms_has_limits(name: str) -> None:
    with pytest.raises(UserError, match=f"'{name}': the number must be 2 to 50"):
        make_env(name)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("rooms-6", "rooms-N"),
        ("tv-rooms-6", "tv-rooms-N"),
        ("atari:mine", "atari:..."),
        ("MiniGrid-Mine", "MiniGrid-..."),
        ("probe:x", "probe:..."),
    ],
)
def test_names_of_families_cannot_be_registered(name: str, family: str) -> None:
    with pytest.raises(UserError, match=f"^environment name '{name}' is taken by the family {family}: choose another"):
        register_env(name, lambda: make_env("probe:corridor"))


def test_listed_names_can_be_made() -> None:
    families = list_environments()
    atari = [family for family in families if family.startswith("Atari")]
    ours = {SIZED, "MiniGrid", "XLand-MiniGrid", "Hard-Eight", "probe"}
    assert set(families) == {*ours, ORIGINAL, "Gymnasium", "EnvPool", "yours", *atari}
    assert families[atari[0]] == [f"atari:{game}" for game in HARD_GAMES]
    assert all(families.values())
    names = [
        name for family, members in families.items() if family not in (SIZED, "Gymnasium", "yours") for name in members
    ]
    assert len(names) == len(set(names)) > 50
    first = [families[family][0] for family in ("MiniGrid", "XLand-MiniGrid")]
    last = [families[family][-1] for family in atari]
    for name in (
        "rooms-2",
        "rooms-50",
        "corridor-3",
        "memory-9",
        *first,
        *families["Hard-Eight"],
        *families["probe"],
        *last,
    ):
        assert make_env(name).spec.name == name


@pytest.mark.parametrize(
    "names",
    [
        ["probe:corridor", "probe:noisy-tv"],  # other observations
        ["probe:memory", "probe:continuous"],  # other actions
        ["rooms-2", "probe:corridor"],
        ["probe:corridor", "rooms-2", "rooms-3"],
    ],
)
def test_tasks_that_do_not_fit_together_are_named(names: list[str]) -> None:
    with pytest.raises(UserError, match=f"'{names[0]}' and '{names[1]}' cannot be learned by one agent"):
        make_envs(names)


def test_tasks_of_one_kind_fit_together() -> None:
    assert [env.spec.name for env in make_envs(["probe:truncated", "probe:terminated"])] == [
        "probe:truncated",
        "probe:terminated",
    ]


def test_tasks_of_several_views_share_the_largest() -> None:
    """Views of 3, 5 and 7; a batch over all of them resets with observations of one shape."""
    names = ["MiniGrid-MemoryS8", "XLand-MiniGrid-R1-9x9", "rooms-2"]
    assert [make_env(name).spec.observation.shape[0] for name in names] == [3, 5, 7]
    envs = make_envs(names)
    assert [env.spec.name for env in envs] == names
    assert {env.spec.observation for env in envs} == {Grid(7, 7, (16, 16))}
    _, first = jax.eval_shape(VectorEnv(envs, 6).reset, jax.random.key(0))
    assert first.observation.shape == (6, 7, 7, 2)
