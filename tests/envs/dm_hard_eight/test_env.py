"""DM-HARD-8 on a server that behaves like the original: requests, observations, and the bounds of episodes."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from byol_explore.envs.dm_hard_eight.client import instruction
from byol_explore.envs.dm_hard_eight.env import DMHardEight, DMHardEightBatch
from byol_explore.envs.families import LEVELS, DMHardEightSettings
from byol_explore.envs.hard_eight.env import HardEight
from byol_explore.envs.hard_eight.tasks import TASKS
from byol_explore.envs.host_vector import make_host_vector_env
from byol_explore.envs.names import EnvSettings
from byol_explore.envs.registry import make_env, make_envs
from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec, Image, Tokens, Vector
from byol_explore.types import UNKNOWN_SUCCESS, Action, TimeStep
from envs.dm_server import ACTIONS, APPLE, Running, running

TASK = "dm-hard-eight:wall-sensor"
SMALL = {"resolution": "8x6", "action_repeat": 1, "start_timeout": 20.0, "answer_timeout": 10.0}


def original(server: Running | str, task: str = "wall-sensor", **settings: Any) -> DMHardEight:
    address = server if isinstance(server, str) else server.address
    return DMHardEight(task, DMHardEightSettings(**{**SMALL, "servers": tuple(address.split("+")), **settings}))


@contextlib.contextmanager
def open_batch(env: DMHardEight, num_envs: int = 1, seed: int = 0) -> Iterator[DMHardEightBatch]:
    with contextlib.closing(env.make_vector_env(num_envs, seed)) as batch:
        yield batch


def act(batch: Any, *, grip: int = 0, **continuous: float) -> TimeStep:
    """Step all environments with one action; the eight numbers have the original's names."""
    numbers = [continuous.get(name, 0.0) for name in ACTIONS[:-1]]
    chosen = np.full((batch.num_envs, 1), grip, np.int32)
    return batch.step(Action(chosen, np.tile(np.float32(numbers), (batch.num_envs, 1))))


def times(step: TimeStep) -> list[int]:
    return step.observation["rgb"][:, 0, 0, 0].tolist()


def copy_step(step: TimeStep) -> TimeStep:
    """Copy the arrays that the next step overwrites."""
    return step._replace(observation={name: seen.copy() for name, seen in step.observation.items()})


# Observations and requests


def test_tasks_are_those_of_hard_eight() -> None:
    assert tuple(LEVELS) == TASKS


def test_observations_and_actions_are_those_of_hard_eight() -> None:
    spec = original("localhost:1", resolution="96x72").spec
    ours = HardEight("wall-sensor").spec
    assert (spec.observation, spec.action) == (ours.observation, ours.action)  # one preset runs on both
    assert list(spec.observation) == ["rgb", "hand_force", "hand_is_holding", "hand_distance", "instruction"]
    assert spec.observation["rgb"] == Image(72, 96, 3)
    assert {spec.observation[f"hand_{name}"] for name in ("force", "is_holding", "distance")} == {Vector(1)}
    assert isinstance(spec.observation["instruction"], Tokens)
    assert spec.action == ActionSpec(discrete=(2,), continuous=8)
    assert (spec.name, spec.reference_scores) == (TASK, (0.0, 9.1))


def test_each_task_has_its_own_instruction() -> None:
    assert len({instruction(task).tobytes() for task in LEVELS}) == 8


def test_worlds_are_created_and_joined_with_the_originals_settings() -> None:
    with running() as server, open_batch(original(server, "drawbridge"), 2) as batch:
        first = batch.reset()
        made = [world.settings for world in server.servicer.created]
        assert {each["levelName"] for each in made} == {"drawbridge_max3fork_safe_randomwall"}
        assert all(each["episodeId"] == 0 and type(each["seed"]) is np.int64 for each in made)
        assert made[0]["seed"] != made[1]["seed"]
        assert server.servicer.joined == [{"width": 8, "height": 6}] * 2
        np.testing.assert_array_equal(first.observation["instruction"], [instruction("drawbridge")] * 2)
        np.testing.assert_array_equal(batch.render(), first.observation["rgb"][0])


def test_seeds_decide_the_levels() -> None:
    def seeds(seed: int) -> set[int]:
        with running() as server, open_batch(original(server), 2, seed) as batch:
            batch.reset()
            return {int(world.settings["seed"]) for world in server.servicer.created}

    assert seeds(3) == seeds(3)
    assert not seeds(3) & seeds(4)


def test_every_step_sends_all_nine_actions_within_their_bounds() -> None:
    """Actions are sticky: one that is left out keeps its value."""
    with running() as server, open_batch(original(server)) as batch:
        batch.reset()
        step = act(batch, grip=1, MOVE_BACK_FORWARD=-7.0, HAND_PUSH_PULL=2.0, LOOK_DOWN_UP=0.25, LOOK_LEFT_RIGHT=np.nan)
        assert (step.observation["hand_force"].item(), step.observation["hand_is_holding"].item()) == (1.0, 1.0)
        step = act(batch, HAND_PUSH_PULL=-0.5)
        assert (step.observation["hand_force"].item(), step.observation["hand_is_holding"].item()) == (0.0, 0.0)
    still, sent, then = server.servicer.sent
    assert set(still) == set(sent) == set(then) == set(ACTIONS)
    assert set(still.values()) == {0.0}
    assert {name: value for name, value in sent.items() if value} == {
        "MOVE_BACK_FORWARD": -1.0, "HAND_PUSH_PULL": 10.0, "LOOK_DOWN_UP": 0.25, "HAND_GRIP": 1.0,
    }  # fmt: skip
    assert {name: value for name, value in then.items() if value} == {"HAND_PUSH_PULL": -5.0}


def test_acceleration_and_score_are_not_requested() -> None:
    with running() as server, open_batch(original(server)) as batch:
        batch.reset()
    assert server.servicer.requested == [
        {"RGB_INTERLEAVED", "HAND_FORCE", "HAND_IS_HOLDING", "HAND_DISTANCE", "reward"}
    ]


# Episodes


def test_termination_and_interruption() -> None:
    with running(length=2, ends=("TERMINATED", "INTERRUPTED")) as server, open_batch(original(server), 2) as batch:
        steps = [batch.reset(), *[copy_step(act(batch)) for _ in range(6)]]
    assert [times(step)[0] for step in steps] == [0, 1, 2, 0, 1, 2, 0]
    assert [step.is_first[1] for step in steps] == [True, False, False, True, False, False, True]
    assert [step.is_last[1] for step in steps] == [False, False, True, False, False, True, False]
    assert [step.discount[1] for step in steps] == [1, 1, 0, 1, 1, 1, 1], "an interrupted episode bootstraps"
    assert [step.reward[0] for step in steps] == [0, 1, APPLE, 0, 1, 1, 0]
    success = [step.success[0] for step in steps]
    assert success == [UNKNOWN_SUCCESS, UNKNOWN_SUCCESS, 1, UNKNOWN_SUCCESS, UNKNOWN_SUCCESS, 0, UNKNOWN_SUCCESS]


@pytest.mark.parametrize("ends", ["TERMINATED", "INTERRUPTED"])
def test_action_repeat_stops_at_the_end_of_an_episode(ends: str) -> None:
    """Episodes of five steps, actions of three: the second action lasts two, the next one only resets."""
    with running(length=5, ends=(ends,)) as server, open_batch(original(server, action_repeat=3)) as batch:
        steps = [batch.reset(), *[copy_step(act(batch, MOVE_BACK_FORWARD=1.0)) for _ in range(3)]]
        assert [times(step) for step in steps] == [[0], [3], [5], [0]]
        assert [step.reward.item() for step in steps] == [0, 3, 1 + (APPLE if ends == "TERMINATED" else 1), 0]
        assert [step.is_last.item() for step in steps] == [False, False, True, False]
        assert steps[3].is_first.item()
        assert server.servicer.steps == 1 + 5 + 1


def test_reset_in_the_middle_begins_a_new_episode() -> None:
    with running(length=5) as server, open_batch(original(server)) as batch:
        batch.reset()
        assert times(act(batch)) == [1]
        again = batch.reset()
        assert (times(again), again.is_first.item(), server.servicer.resets) == ([0], True, 1)
        assert times(act(batch)) == [1]
        assert len(server.servicer.created) == 1


# Servers


def test_each_environment_joins_a_world_and_leaves_it() -> None:
    with running() as server:
        with open_batch(original(server), 3) as batch:
            batch.reset()
            assert len(server.servicer.worlds) == 3
        assert not server.servicer.worlds


def test_environments_are_spread_over_servers() -> None:
    """Also the environments of two batches, as of two actors; a closed batch frees its server."""
    with running(rooms=1) as one, running(rooms=1) as two, running(rooms=1) as three:
        env = original("+".join(server.address for server in (one, two, three)))
        with open_batch(env, 2) as batch:
            batch.reset()
            with open_batch(env) as another:
                another.reset()
                assert [len(server.servicer.worlds) for server in (one, two, three)] == [1, 1, 1]
        with open_batch(env, 3) as batch:
            batch.reset()


def test_random_tasks_change_the_level_on_the_same_server() -> None:
    tasks = ("baseball", "drawbridge")

    def play(seed: int) -> tuple[np.ndarray, list[str]]:
        with running(length=1, rooms=2) as server:
            envs = [original(server, task) for task in tasks]
            with contextlib.closing(make_host_vector_env(envs, 2, seed, "random")) as batch:
                steps, ids = [copy_step(batch.reset())], [batch.task_ids()]
                for _ in range(40):
                    steps.append(copy_step(act(batch)))
                    ids.append(batch.task_ids())
            assert not server.servicer.worlds
            assert server.servicer.streams == 2, "a connection for each environment"
        shown = np.stack([[row.tobytes() for row in step.observation["instruction"]] for step in steps])
        np.testing.assert_array_equal(shown, np.array([instruction(task).tobytes() for task in tasks])[np.stack(ids)])
        drawn = np.stack(ids)[np.stack([step.is_first for step in steps])]
        assert 0.25 < drawn.mean() < 0.75
        changes = np.stack(ids)[1:] != np.stack(ids)[:-1]
        assert not (changes & ~np.stack([step.is_first for step in steps])[1:]).any()
        assert len(server.servicer.created) == 2 + changes.sum(), "the same task keeps its world"
        return np.stack(ids), [world.settings["levelName"] for world in server.servicer.created]

    ids, levels = play(0)
    assert set(levels) == {LEVELS[task].name for task in tasks}
    np.testing.assert_array_equal(ids, play(0)[0])
    assert (ids != play(1)[0]).any()


# Settings


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        (
            "bridge",
            {"servers": ("localhost:1",)},
            "unknown task of dm-hard-eight 'bridge' (did you mean drawbridge?); choose from: drawbridge, ",
        ),
        (
            "wall-sensor",
            {},
            "dm-hard-eight:wall-sensor needs the original: give one of dm_hard_eight.servers (HOST:PORT), "
            "dm_hard_eight.directory (PATH), dm_hard_eight.docker_image (IMAGE); see docs/dm-hard-eight.md",
        ),
        (
            "wall-sensor",
            {"servers": ("localhost",)},
            "dm_hard_eight.servers names 'localhost': it must be HOST:PORT, like ",
        ),
        ("wall-sensor", {"servers": ("a:1", "b")}, "dm_hard_eight.servers names 'b': it must be HOST:PORT, like "),
        (
            "wall-sensor",
            {"servers": ("a:1",), "docker_image": "b"},
            "dm_hard_eight has servers and docker_image: give one of them",
        ),
        (
            "wall-sensor",
            {"servers": ("a:1",), "resolution": "72x96"},
            "dm_hard_eight.resolution is '72x96': it must be WIDTHxHEIGHT in the ratio of 4 to 3, like 96x72",
        ),
        (
            "wall-sensor",
            {"servers": ("a:1",), "action_repeat": 0},
            "dm_hard_eight.action_repeat is 0: it must be positive",
        ),
        (
            "wall-sensor",
            {"directory": "no/such/place"},
            "dm_hard_eight.directory is 'no/such/place': it has no executable Linux64Player",
        ),
        (
            "wall-sensor",
            {"docker_image": "hard-eight:1"},
            "dm_hard_eight.docker_image is 'hard-eight:1': there is no command docker to run it",
        ),
        (
            "wall-sensor",
            {"speed": 1},
            "unknown setting of dm-hard-eight:wall-sensor 'speed'; choose from: servers",
        ),
    ],
)
def test_wrong_or_missing_settings_give_one_line(
    monkeypatch: pytest.MonkeyPatch, task: str, settings: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError) as caught:
        make_env(f"dm-hard-eight:{task}", **settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("byol_explore.envs.dm_hard_eight."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dm_env_rpc", None)
    monkeypatch.setitem(sys.modules, "dm_env_rpc.v1", None)
    message = rf"^{TASK} needs dm-env-rpc: pip install 'byol-explore\[dm-hard-eight\]'$"
    with pytest.raises(UserError, match=message):
        make_env(TASK, servers=("localhost:1",))


def test_tasks_can_be_learned_together() -> None:
    settings = EnvSettings(dm_hard_eight=DMHardEightSettings(servers=("localhost:1",), action_repeat=4))
    envs = make_envs([f"dm-hard-eight:{task}" for task in LEVELS], settings)
    assert [env.settings.action_repeat for env in envs if isinstance(env, DMHardEight)] == [4] * 8


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"servers": ("localhost:1", "127.0.0.1:2")}, []),
        ({"servers": ("localhost:1", "elsewhere:2")}, ["elsewhere:2"]),
        ({"directory": "there"}, ["there"]),
        ({"docker_image": "image"}, ["image"]),
        ({"resolution": "8x6"}, []),
    ],
)
def test_external_values_need_consent(settings: dict[str, Any], expected: list[str]) -> None:
    assert EnvSettings(dm_hard_eight=DMHardEightSettings(**settings)).external([TASK]) == expected
