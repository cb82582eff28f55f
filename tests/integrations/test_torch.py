"""With real PyTorch: tensors give tensors on their device, and their memory is copied."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from byol_explore import UserError
from byol_explore.dropin.inputs import to_numpy
from dropins import Rollout, assert_same, experienced, rollout


def tensors(given: Rollout) -> list[torch.Tensor]:
    return [torch.from_numpy(x.copy()) for x in given]


def test_tensors_give_tensors_with_the_same_values() -> None:
    curiosity, plain, given = experienced(), experienced(), rollout(8, seed=1)
    found = [*curiosity.learn(*tensors(given))[:1], curiosity.reward(*tensors(rollout(8, seed=2)))]
    found.append(curiosity.step(*(x[0] for x in tensors(rollout(1, seed=3)))))
    expected = [plain.learn(*given)[0], plain.reward(*rollout(8, seed=2)), plain.step(*rollout(1, seed=3).at(0))]
    for ours, theirs in zip(found, expected, strict=True):
        assert isinstance(ours, torch.Tensor)
        assert (ours.dtype, ours.device) == (torch.float32, torch.device("cpu"))
        np.testing.assert_array_equal(ours.numpy(), theirs)
    assert_same(curiosity, plain)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_tensors_are_refused(layout: torch.layout) -> None:
    flags = torch.zeros(4, 3).to_sparse(layout=layout)
    with pytest.raises(UserError, match=r"a tensor of layout torch\.sparse_.* was given: it must be a dense one"):
        to_numpy(flags)


def test_results_may_be_overwritten() -> None:
    curiosity, plain = experienced(), experienced()
    for given in (rollout(8, seed=1), rollout(8, seed=2)):
        curiosity.learn(*tensors(given))[0].fill_(7.0)
        plain.learn(*given)
    assert_same(curiosity, plain)


def test_a_buffer_that_is_overwritten_later_changes_nothing() -> None:
    """PyTorch's memory is 64-byte-aligned, so JAX would share it; `from_numpy` shares it in both directions."""
    curiosity, plain = experienced(), experienced()
    for seed in range(3):
        given, one = rollout(16, seed=seed), rollout(1, seed=10 + seed)
        buffers, single = tensors(given), [x[0] for x in tensors(one)]
        ours = curiosity.learn(*buffers)[0], curiosity.step(*single), curiosity.reward(*buffers)
        for buffer in (*buffers, *single):
            buffer.fill_(1)
        theirs = plain.learn(*given)[0], plain.step(*one.at(0)), plain.reward(*given)
        for x, y in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(x.numpy(), y)
        assert_same(curiosity, plain)


def test_tensors_with_gradients_and_bfloat16_are_accepted() -> None:
    curiosity, plain, given = experienced(), experienced(), rollout(8, seed=1)
    given = given._replace(obs=np.round(given.obs, 1), next_obs=np.round(given.next_obs, 1))
    halves = [torch.tensor(x).to(torch.bfloat16) for x in (given.obs, given.next_obs)]
    obs, after = (x.float().numpy() for x in halves)
    rewards = curiosity.reward(halves[0].requires_grad_(), torch.tensor(given.actions), halves[1], *tensors(given)[3:])
    assert not rewards.requires_grad
    np.testing.assert_array_equal(rewards.numpy(), plain.reward(*given._replace(obs=obs, next_obs=after)))
    np.testing.assert_array_equal(to_numpy(torch.ones(2, dtype=torch.bool)), [True, True])


@pytest.mark.parametrize("name", ["Curiosity", "CuriousVectorEnv", "diagnose"])
def test_pytorch_is_not_imported_though_installed(name: str) -> None:
    code = f"import sys, byol_explore; byol_explore.{name}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
