"""The policy head."""

import equinox as eqx
import jax
import numpy as np
import pytest

from builders import ACTIONS, call, jit, make, numpy_mlp
from byol_explore.networks.representation import PolicyHead


def hybrid_head() -> PolicyHead:
    return make(lambda key: PolicyHead(6, (9,), ACTIONS["hybrid"], key))


def beliefs(*lead: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(*lead, 6)).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "logits", "dimensions"), [("discrete", [4], 0), ("continuous", [], 2), ("hybrid", [3, 2], 2)]
)
def test_shapes(kind: str, logits: list[int], dimensions: int) -> None:
    head = make(lambda key: PolicyHead(6, (9,), ACTIONS[kind], key))
    policy = jax.eval_shape(head, beliefs(7, 3))
    assert [part.shape for part in policy.logits] == [(7, 3, n) for n in logits]
    assert policy.mean.shape == policy.stddev.shape == (7, 3, dimensions)


def test_parts_are_projections_of_one_hidden_layer() -> None:
    head, x = hybrid_head(), beliefs(7)
    policy, y = call(head, x), numpy_mlp(head.mlp, x)
    assert y.shape == (7, 3 + 2 + 2 * 2)
    expected = [y[:, :3], y[:, 3:5], y[:, 5:7], np.log1p(np.exp(y[:, 7:] + 0.54)) + head.min_stddev]
    for part, values in zip([*policy.logits, policy.mean, policy.stddev], expected, strict=True):
        np.testing.assert_allclose(part, values, rtol=1e-4, atol=1e-5)


def test_stddev_stays_positive_and_finite() -> None:
    policy = call(hybrid_head(), 1e4 * beliefs(50))
    stddev = np.asarray(policy.stddev)
    assert stddev.min() == pytest.approx(1e-3, rel=1e-3)
    assert np.isfinite(stddev).all()
    assert stddev.max() > 1e3


def test_a_policy_of_zeros_spans_the_bounds() -> None:
    head = hybrid_head()
    silent = eqx.tree_at(lambda h: h.mlp, head, jax.tree.map(np.zeros_like, head.mlp))
    np.testing.assert_allclose(call(silent, beliefs(1)).stddev, 1.0, atol=2e-3)
    np.testing.assert_array_equal(call(silent, beliefs(1)).mean, 0.0)


def test_scale_shrinks_only_the_outputs() -> None:
    def both(key: jax.Array) -> tuple[PolicyHead, PolicyHead]:
        return PolicyHead(6, (9,), ACTIONS["hybrid"], key), PolicyHead(6, (9,), ACTIONS["hybrid"], key, scale=0.01)

    plain, small = jit(both)(jax.random.key(0))
    np.testing.assert_array_equal(plain.mlp.layers[0].weight, small.mlp.layers[0].weight)
    np.testing.assert_allclose(0.01 * np.asarray(plain.mlp.layers[1].weight), small.mlp.layers[1].weight, rtol=1e-5)
