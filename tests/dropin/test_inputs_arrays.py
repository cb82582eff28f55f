"""Arrays of NumPy, JAX and PyTorch: results are of the same library, and callers' memory is copied."""

import subprocess
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from byol_explore import UserError
from byol_explore.dropin.inputs import converter_to, to_numpy
from dropins import Rollout, assert_same, experienced, rollout


class Tensor:
    """The part of PyTorch's interface that is used."""

    layout = "torch.strided"

    def __init__(self, values: Any, device: str = "cpu", dtype: str = "torch.float32") -> None:
        self.values, self.device, self.dtype = np.asarray(values), device, dtype

    def detach(self) -> "Tensor":
        return self

    def cpu(self) -> "Tensor":
        return Tensor(self.values, dtype=self.dtype)

    def to(self, device: str) -> "Tensor":
        return Tensor(self.values, device)

    def float(self) -> "Tensor":
        return Tensor(self.values)

    def numpy(self) -> np.ndarray:
        assert self.device == "cpu"
        assert self.dtype != "torch.bfloat16"
        return self.values


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.SimpleNamespace(Tensor=Tensor, from_numpy=Tensor)
    monkeypatch.setitem(sys.modules, "torch", module)  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("torch")
def test_traced_arrays_are_refused() -> None:
    curiosity, given = experienced(), rollout(4)
    with pytest.raises(UserError, match=r"an array inside of jit, grad or vmap was given: curiosity is asked outside"):
        jax.jit(lambda obs: curiosity.reward(obs, *given[1:]))(given.obs)
    sparse = Tensor(given.obs)
    sparse.layout = "torch.sparse_coo"
    with pytest.raises(UserError, match=r"a tensor of layout torch\.sparse_coo was given: it must be a dense one"):
        curiosity.reward(sparse, *given[1:])


@pytest.mark.usefixtures("torch")
def test_tensors_give_tensors_on_their_device() -> None:
    curiosity, given = experienced(), rollout(4)
    tensors = [Tensor(x, "cuda:1") for x in given]
    intrinsic = curiosity.reward(*tensors)
    assert (type(intrinsic), intrinsic.device) == (Tensor, "cuda:1")
    np.testing.assert_array_equal(intrinsic.values, experienced().reward(*given))
    assert curiosity.step(*(Tensor(x, "cuda:1") for x in rollout(1).at(0))).device == "cuda:1"
    np.testing.assert_array_equal(to_numpy(Tensor([1.0], dtype="torch.bfloat16")), [1.0])


def test_results_are_of_the_library_of_the_arguments() -> None:
    curiosity, given = experienced(), rollout(4)
    expected = experienced().reward(*given)
    device = jax.devices()[1]
    moved = [jax.device_put(x, device) for x in given]
    intrinsic = curiosity.reward(*moved)
    assert isinstance(intrinsic, jax.Array)
    assert intrinsic.devices() == {device}
    np.testing.assert_array_equal(intrinsic, expected)
    assert isinstance(expected, np.ndarray)
    expected[:] = 0.0  # it is the caller's own
    assert to_numpy(jnp.ones(2, jnp.bfloat16)).dtype == np.float32
    assert isinstance(converter_to({"a": (jnp.ones(2), 1)})(np.ones(2)), jax.Array)


def aligned(array: np.ndarray) -> np.ndarray:
    """Return a copy at an address that JAX would share instead of copying."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[:] = array
    return copy


def test_jax_shares_aligned_memory() -> None:
    """If JAX stopped sharing such memory, the next test would show nothing."""
    buffer = aligned(np.ones(1024, np.float32))
    taken = jax.device_put(buffer)
    buffer[:] = 7.0
    assert float(taken[0]) == 7.0


def test_a_buffer_that_is_overwritten_later_changes_nothing() -> None:
    """Overwrite all arrays of the caller after `learn`, `reward` and `step`."""
    plain, careless = experienced(), experienced()
    first, second, third = rollout(16, seed=1), rollout(8, seed=2), rollout(1, seed=3)
    for given in (first, second):
        expected = plain.learn(*given)[0], plain.reward(*rollout(8, seed=4)), plain.step(*third.at(0))
        buffers = Rollout(*map(aligned, given))
        others, one = Rollout(*map(aligned, rollout(8, seed=4))), [aligned(x) for x in third.at(0)]
        found = careless.learn(*buffers)[0], careless.reward(*others), careless.step(*one)
        for buffer in (*buffers, *others, *one):
            buffer[...] = 1
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert_same(careless, plain)


def test_pytorch_is_not_imported() -> None:
    code = "import sys, byol_explore; byol_explore.Curiosity; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
