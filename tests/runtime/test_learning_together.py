"""Several processes with a device each learn what one process with as many devices learns."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest

from byol_explore.runtime.processes import ALONE
from learning_together import LESSONS
from pairs import TESTS, free_port, processes

SLOW = ("inside-jit", "outside-jit", "ppo-outside-jit")


@functools.cache
def learned_by(count: int, *lessons: str, devices: int = 1) -> dict[str, np.ndarray]:
    """So many processes, with so many devices each."""
    with tempfile.TemporaryDirectory() as directory, free_port() as port:
        path, script = Path(directory) / "learned.npz", TESTS / "learning_together.py"
        commands = [[script, index, count, port, path, ",".join(lessons)] for index in range(count)]
        with processes(*commands, devices=devices) as started:
            for code, out, err in (each.end() for each in started):
                assert (code, out) == (0, ""), err
        return dict(np.load(path))


def assert_equal_to_one(lesson: str, learned: dict[str, np.ndarray]) -> None:
    """The whole state and all that is told of it."""
    actual = {key.partition("/")[2]: x for key, x in learned.items() if key.startswith(f"{lesson}/")}
    assert_equal(LESSONS[lesson](ALONE), actual)


def assert_equal(expected: dict[str, np.ndarray], actual: dict[str, np.ndarray]) -> None:
    assert actual.keys() == expected.keys()
    assert len(expected) > 50
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=1e-6, err_msg=name)


def test_two_processes_learn_from_a_batch_what_two_devices_of_one_learn() -> None:
    assert_equal_to_one("one-batch", learned_by(2, "one-batch"))


@pytest.mark.slow
@pytest.mark.parametrize("lesson", SLOW)
def test_two_processes_act_and_learn_as_two_devices_of_one_do(lesson: str) -> None:
    """Outside jit each process has actors of its own, whose rollouts are halves of those of one."""
    assert_equal_to_one(lesson, learned_by(2, *SLOW))


@pytest.mark.slow
def test_four_processes_learn_what_four_devices_of_one_learn() -> None:
    """From a batch, and in dispatches inside jit."""
    lessons = ("one-batch", "inside-jit")
    learned = learned_by(4, *lessons)
    assert learned["inside-jit/[1].key"].shape[0] == 4
    assert_equal(learned_by(1, *lessons, devices=4), learned)
