"""Tests that several processes with a device each learn the same as one process with as many devices."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest

from byol_explore.runtime.distributed import SINGLE_PROCESS
from child_processes import TESTS, free_port, processes
from learning_together import CASES

SLOW = ("inside-jit", "outside-jit", "ppo-outside-jit")


@functools.cache
def results_of(count: int, *cases: str, devices: int = 1) -> dict[str, np.ndarray]:
    """Return the results of cases in `count` processes with `devices` each."""
    with tempfile.TemporaryDirectory() as directory, free_port() as port:
        path, script = Path(directory) / "results.npz", TESTS / "learning_together.py"
        commands = [[script, index, count, port, path, ",".join(cases)] for index in range(count)]
        with processes(*commands, devices=devices) as started:
            for code, out, err in (each.end() for each in started):
                assert (code, out) == (0, ""), err
        return dict(np.load(path))


def assert_equal(
    expected: dict[str, np.ndarray], actual: dict[str, np.ndarray], rtol: float = 1e-4, atol: float = 1e-6
) -> None:
    assert actual.keys() == expected.keys()
    assert len(expected) > 50
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=rtol, atol=atol, err_msg=name)


def select(case: str, results: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the results of one case: its whole state and all outputs."""
    return {key.partition("/")[2]: x for key, x in results.items() if key.startswith(f"{case}/")}


def test_update_in_two_processes_equals_that_on_two_devices() -> None:
    received = results_of(2, "one-batch", "broadcast")
    assert_equal(CASES["one-batch"](SINGLE_PROCESS), select("one-batch", received))


def test_broadcast_keeps_every_bit_of_arrays_and_keys() -> None:
    received = results_of(2, "one-batch", "broadcast")
    for name, expected in CASES["broadcast"](SINGLE_PROCESS).items():
        actual = received[f"broadcast/{name}"]
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, np.concatenate([expected, expected]), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW)
def test_dispatches_in_two_processes_equal_those_on_two_devices(case: str) -> None:
    """Outside jit each process has actors of its own, whose rollouts are halves of those of one process."""
    # Both in child processes, which compile alike: V-MPO takes the better half of 12 advantages, so another rounding of
    # two that are equal may change its loss by a hundredth.
    one, two = (select(case, results_of(count, *SLOW, devices=2 // count)) for count in (1, 2))
    assert_equal(one, two, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_four_processes_learn_the_same_as_four_devices() -> None:
    """Compare an update and dispatches inside jit."""
    cases = ("one-batch", "inside-jit")
    results = results_of(4, *cases)
    assert results["inside-jit/[1].key"].shape[0] == 8  # one for every environment
    assert_equal(results_of(1, *cases, devices=4), results, rtol=1e-3, atol=1e-5)
