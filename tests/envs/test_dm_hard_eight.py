"""DM-HARD-8 on a server that behaves like the original: what is sent, what is seen, and how episodes begin and end."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from byol_explore.envs.adapters.dm_hard_eight import DMHardEight, DMHardEightBatch
from byol_explore.envs.adapters.dm_hard_eight_protocol import instruction
from byol_explore.envs.adapters.dm_hard_eight_settings import LEVELS, DMHardEightSettings
from byol_explore.envs.families import outside_words
from byol_explore.envs.host import Partial
from byol_explore.envs.host_tasks import DrawnBatch
from byol_explore.envs.registry import make_env, make_envs
from byol_explore.envs.worlds.hard_eight.settings import TASKS
from byol_explore.envs.worlds.hard_eight.spec import HardEight
from byol_explore.errors import UserError
from byol_explore.spaces import ActionSpec, Image, Tokens, Vector
from byol_explore.types import UNSAID, Action, TimeStep
from envs.dm_server import ACTIONS, APPLE, Running, running

TASK = "dm-hard-eight:wall-sensor"
SMALL = {"resolution": "8x6", "action_repeat": 1, "start_timeout": 20.0, "answer_timeout": 10.0}


def original(server: Running | str, task: str = "wall-sensor", **settings: Any) -> DMHardEight:
    address = server if isinstance(server, str) else server.address
    return DMHardEight(task, DMHardEightSettings(**{**SMALL, "server": tuple(address.split("+")), **settings}))


@contextlib.contextmanager
def open_batch(env: DMHardEight, num_envs: int = 1, seed: int = 0) -> Iterator[DMHardEightBatch]:
    with contextlib.closing(env.batch(num_envs, seed)) as batch:
        yield batch


def act(batch: Any, *, grip: int = 0, **continuous: float) -> TimeStep:
    """The same action for all environments, the eight by the original's names."""
    numbers = [continuous.get(name, 0.0) for name in ACTIONS[:-1]]
    chosen = np.full((batch.num_envs, 1), grip, np.int32)
    return batch.step(Action(chosen, np.tile(np.float32(numbers), (batch.num_envs, 1))))


def times(step: TimeStep) -> list[int]:
    return step.observation["rgb"][:, 0, 0, 0].tolist()


def copied(step: TimeStep) -> TimeStep:
    """What the next step does not overwrite."""
    return step._replace(observation={name: seen.copy() for name, seen in step.observation.items()})


# What is seen and sent


def test_tasks_are_those_of_hard_eight() -> None:
    assert tuple(LEVELS) == TASKS


def test_observations_and_actions_are_those_of_hard_eight() -> None:
    spec = original("localhost:1", resolution="96x72").spec
    ours = HardEight("wall-sensor").spec
    assert (spec.observation, spec.action) == (ours.observation, ours.action)  # so that one preset runs on both
    assert list(spec.observation) == ["rgb", "hand_force", "hand_is_holding", "hand_distance", "instruction"]
    assert spec.observation["rgb"] == Image(72, 96, 3)
    assert {spec.observation[f"hand_{name}"] for name in ("force", "is_holding", "distance")} == {Vector(1)}
    assert isinstance(spec.observation["instruction"], Tokens)
    assert spec.action == ActionSpec(discrete=(2,), continuous=8)
    assert (spec.name, spec.scores) == (TASK, (0.0, 9.1))


def test_each_task_tells_something_else() -> None:
    assert len({instruction(task).tobytes() for task in LEVELS}) == 8


def test_a_world_is_created_and_joined_as_the_original_wants() -> None:
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


def test_all_nine_actions_are_sent_with_every_step_within_their_bounds() -> None:
    """They are sticky: one that is left out would go on."""
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


def test_acceleration_and_score_are_not_asked_for() -> None:
    with running() as server, open_batch(original(server)) as batch:
        batch.reset()
    assert server.servicer.asked == [{"RGB_INTERLEAVED", "HAND_FORCE", "HAND_IS_HOLDING", "HAND_DISTANCE", "reward"}]


# Episodes


def test_termination_and_interruption() -> None:
    with running(length=2, ends=("TERMINATED", "INTERRUPTED")) as server, open_batch(original(server), 2) as batch:
        steps = [batch.reset(), *[copied(act(batch)) for _ in range(6)]]
    assert [times(step)[0] for step in steps] == [0, 1, 2, 0, 1, 2, 0]
    assert [step.is_first[1] for step in steps] == [True, False, False, True, False, False, True]
    assert [step.is_last[1] for step in steps] == [False, False, True, False, False, True, False]
    assert [step.discount[1] for step in steps] == [1, 1, 0, 1, 1, 1, 1], "an interrupted episode bootstraps"
    assert [step.reward[0] for step in steps] == [0, 1, APPLE, 0, 1, 1, 0]
    success = [step.with_success().success[0] for step in steps]
    assert success == [UNSAID, UNSAID, 1, UNSAID, UNSAID, 0, UNSAID]


@pytest.mark.parametrize("ends", ["TERMINATED", "INTERRUPTED"])
def test_repeated_actions_stop_at_the_end_and_begin_with_the_first_observation(ends: str) -> None:
    """Five steps with actions of three: the second action lasts two, and the next one is not repeated at all."""
    with running(length=5, ends=(ends,)) as server, open_batch(original(server, action_repeat=3)) as batch:
        steps = [batch.reset(), *[copied(act(batch, MOVE_BACK_FORWARD=1.0)) for _ in range(3)]]
        assert [times(step) for step in steps] == [[0], [3], [5], [0]]
        assert [step.reward.item() for step in steps] == [0, 3, 1 + (APPLE if ends == "TERMINATED" else 1), 0]
        assert [step.is_last.item() for step in steps] == [False, False, True, False]
        assert steps[3].is_first.item()
        assert server.servicer.steps == 1 + 5 + 1


def test_a_reset_in_the_middle_begins_anew() -> None:
    with running(length=5) as server, open_batch(original(server)) as batch:
        batch.reset()
        assert times(act(batch)) == [1]
        again = batch.reset()
        assert (times(again), again.is_first.item(), server.servicer.resets) == ([0], True, 1)
        assert times(act(batch)) == [1]
        assert len(server.servicer.created) == 1


def test_some_can_be_stepped_while_the_others_stand_still() -> None:
    with running(length=5) as server, open_batch(original(server), 3) as batch:
        assert isinstance(batch, Partial)
        batch.reset()
        nothing = Action(np.zeros((3, 1), np.int32), np.zeros((3, 8), np.float32))
        assert times(batch.step_some(nothing, np.array([True, False, True]))) == [1, 0, 1]
        assert times(batch.step(nothing)) == [2, 1, 2]


# Servers


def test_each_environment_has_a_world_and_leaves_it() -> None:
    with running() as server:
        with open_batch(original(server), 3) as batch:
            batch.reset()
            assert len(server.servicer.worlds) == 3
        assert not server.servicer.worlds


def test_environments_are_spread_over_servers() -> None:
    """Also those of two batches, as two actors have; a closed one makes room."""
    with running(rooms=1) as one, running(rooms=1) as two, running(rooms=1) as three:
        env = original("+".join(server.address for server in (one, two, three)))
        with open_batch(env, 2) as batch:
            batch.reset()
            with open_batch(env) as another:
                another.reset()
                assert [len(server.servicer.worlds) for server in (one, two, three)] == [1, 1, 1]
        with open_batch(env, 3) as batch:
            batch.reset()


def test_a_task_can_be_drawn_for_each_episode() -> None:
    with running(length=1) as server:
        envs = [original(server, task) for task in ("baseball", "drawbridge")]
        batch = DrawnBatch(envs, 2, 0)
        with contextlib.closing(batch):
            seen = [batch.reset().observation["instruction"].copy()]
            seen += [act(batch).observation["instruction"].copy() for _ in range(12)]
    told = {row.tobytes() for rows in seen for row in rows}
    assert told == {instruction("baseball").tobytes(), instruction("drawbridge").tobytes()}


# Settings


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("bridge", {"server": "localhost:1"}, "unknown task of dm-hard-eight 'bridge'; choose from: drawbridge, "),
        (
            "wall-sensor",
            {},
            "dm-hard-eight:wall-sensor needs the original: give one of --env-settings server=HOST:PORT, "
            "directory=PATH, container=IMAGE (see docs/dm-hard-eight.md)",
        ),
        ("wall-sensor", {"server": "localhost"}, "env_settings.server names 'localhost': it must be HOST:PORT, like "),
        ("wall-sensor", {"server": "a:1+b"}, "env_settings.server names 'b': it must be HOST:PORT, like "),
        ("wall-sensor", {"server": "a:1", "container": "b"}, "env_settings has server and container: give one of them"),
        (
            "wall-sensor",
            {"server": "a:1", "resolution": "72x96"},
            "env_settings.resolution is '72x96': it must be WIDTHxHEIGHT in the ratio of 4 to 3, like 96x72",
        ),
        ("wall-sensor", {"server": "a:1", "action_repeat": 0}, "env_settings.action_repeat is 0: it must be positive"),
        (
            "wall-sensor",
            {"directory": "no/such/place"},
            "env_settings.directory is 'no/such/place': it has no executable Linux64Player",
        ),
        (
            "wall-sensor",
            {"container": "hard-eight:1"},
            "env_settings.container is 'hard-eight:1': there is no command docker to run it",
        ),
        ("wall-sensor", {"speed": 1}, "unknown environment setting 'speed'; those of DM-HARD-8 are server, directory"),
    ],
)
def test_what_is_wrong_or_missing_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, task: str, settings: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError) as caught:
        make_env(f"dm-hard-eight:{task}", settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_without_the_extra_one_reads_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("byol_explore.envs.adapters.dm_hard_eight") and not name.endswith("settings"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dm_env_rpc", None)
    monkeypatch.setitem(sys.modules, "dm_env_rpc.v1", None)
    message = rf"^{TASK} needs dm-env-rpc: pip install 'byol-explore\[dm-hard-eight\]'$"
    with pytest.raises(UserError, match=message):
        make_env(TASK, {"server": "localhost:1"})


def test_tasks_can_be_learned_together() -> None:
    envs = make_envs([f"dm-hard-eight:{task}" for task in LEVELS], {"server": "localhost:1", "action_repeat": 4})
    assert [env.settings.action_repeat for env in envs if isinstance(env, DMHardEight)] == [4] * 8


@pytest.mark.parametrize(
    ("word", "asks"),
    [
        ("server=localhost:1+127.0.0.1:2", False),
        ("server=localhost:1+elsewhere:2", True),
        ("directory=there", True),
        ("container=image", True),
        ("resolution=8x6", False),
    ],
)
def test_what_a_file_would_start_or_reach_needs_consent(word: str, asks: bool) -> None:
    assert outside_words([TASK], [word, "action_repeat=2"]) == [word] * asks
