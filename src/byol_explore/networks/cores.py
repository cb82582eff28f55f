"""Recurrent cores: GRU and LSTM cells, the closed loop over observations and the open loop over actions.

The input half of a cell is one matrix product over all time steps (`CoreInputs`); only the recurrent half is scanned.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.networks.layers import Linear
from byol_explore.types import PyTree


class Core(eqx.Module):
    """A recurrent cell whose input is already projected to its gates, [..., gate_size]."""

    recurrent: Linear  # belief [..., M] to gates; the only parameters of a core
    size: int = eqx.field(static=True)  # M

    @property
    def gate_size(self) -> int:
        """Width of the projected input."""
        return self.recurrent.weight.shape[1]

    @abstractmethod
    def initial_state(self, batch: tuple[int, ...]) -> Any:
        """Return the state [*batch, ...] at the start of an episode."""

    @abstractmethod
    def belief(self, state: Any) -> Array:
        """Return the belief b_t [..., M] of a state."""

    @abstractmethod
    def apply_gates(self, state: Any, recurrent: Array, projected: Array) -> Any:
        """Compute the next state elementwise from the projected belief and the projected input, [..., gate_size]."""

    def step(self, state: Any, projected: Array) -> Any:
        """Advance a state [..., *] by one projected input [..., gate_size]."""
        return self.apply_gates(state, self.recurrent(self.belief(state)), projected)


class GRU(Core):
    """Gated recurrent unit (Cho et al., 2014).

    The reset gate is applied after the matrix product, so that one product serves all gates.
    """

    def __init__(self, size: int, key: Array) -> None:
        self.recurrent, self.size = Linear(size, 3 * size, key), size

    def initial_state(self, batch: tuple[int, ...]) -> Float[Array, "*batch M"]:
        return jnp.zeros((*batch, self.size))

    def apply_gates(
        self,
        state: Float[Array, "*batch M"],
        recurrent: Float[Array, "*batch gates"],
        projected: Float[Array, "*batch gates"],
    ) -> Float[Array, "*batch M"]:
        x_reset, x_update, x_new = jnp.split(projected, 3, axis=-1)
        h_reset, h_update, h_new = jnp.split(recurrent, 3, axis=-1)
        reset = jax.nn.sigmoid(x_reset + h_reset)
        update = jax.nn.sigmoid(x_update + h_update)
        candidate = jnp.tanh(x_new + reset * h_new)
        return state + update * (candidate - state)

    def belief(self, state: Float[Array, "*batch M"]) -> Float[Array, "*batch M"]:
        return state


class LSTMState(NamedTuple):
    hidden: Array  # [..., M]
    cell: Array  # [..., M]


class LSTM(Core):
    """Long short-term memory with a forget gate bias of one."""

    def __init__(self, size: int, key: Array) -> None:
        self.recurrent, self.size = Linear(size, 4 * size, key), size

    def initial_state(self, batch: tuple[int, ...]) -> LSTMState:
        return LSTMState(jnp.zeros((*batch, self.size)), jnp.zeros((*batch, self.size)))

    def apply_gates(
        self, state: LSTMState, recurrent: Float[Array, "*batch gates"], projected: Float[Array, "*batch gates"]
    ) -> LSTMState:
        write, candidate, forget, read = jnp.split(projected + recurrent, 4, axis=-1)
        cell = jax.nn.sigmoid(forget + 1.0) * state.cell + jax.nn.sigmoid(write) * jnp.tanh(candidate)
        return LSTMState(jax.nn.sigmoid(read) * jnp.tanh(cell), cell)

    def belief(self, state: LSTMState) -> Float[Array, "*batch M"]:
        return state.hidden


CORES = {"gru": GRU, "lstm": LSTM}


def reset_where(core: Core, is_first: Bool[Array, "*batch"], state: PyTree) -> PyTree:
    """Replace a state [*batch, ...] by the initial state where `is_first` is True."""
    initial = core.initial_state(is_first.shape)
    return jax.tree.map(lambda i, s: jnp.where(is_first[..., None], i, s), initial, state)


@jax.custom_vjp
def closed_loop(
    core: Core, projected: Float[Array, "T B gates"], is_first: Bool[Array, "T B"], state: PyTree
) -> PyTree:
    """Run the closed-loop core along sequences: b_t = h_c(b_{t-1}, a_{t-1}, f(o_t)).

    It has its own VJP. The gradient of the states is scanned backwards; the gradient of the weights is computed for all
    steps at once afterwards: one large product instead of T small ones, and on several devices one all-reduce instead
    of T. The gates' residuals are stored as in any scan.

    Args:
      core: the cell.
      projected: [T, B, gates] projected inputs (a_{t-1}, f(o_t)).
      is_first: [T, B] True where an episode begins; the state is reset there and nowhere else.
      state: [B, ...] state before the first step.
    Returns:
      States [T, B, ...] after each step.
    """
    return _forward(core, projected, is_first, state)[0]


def _forward(core: Core, projected: Array, is_first: Array, state: PyTree) -> tuple[PyTree, tuple[PyTree, ...]]:
    def step(carry: PyTree, inputs: tuple[Array, Array]) -> tuple[PyTree, tuple[PyTree, PyTree, PyTree]]:
        projected_t, is_first_t = inputs
        before = reset_where(core, is_first_t, carry)
        carry, gates_vjp = jax.vjp(core.apply_gates, before, core.recurrent(core.belief(before)), projected_t)
        return carry, (carry, before, gates_vjp)

    states, before, gates_vjp = jax.lax.scan(step, state, (projected, is_first))[1]
    return states, (core, is_first, before, gates_vjp)


def _backward(residuals: tuple[PyTree, ...], grads: PyTree) -> tuple[Core, Array, None, PyTree]:
    core, is_first, before, gates_vjp = residuals

    def step(carry: PyTree, inputs: PyTree) -> tuple[PyTree, tuple[Array, Array]]:
        grad_t, before_t, gates_vjp_t, is_first_t = inputs
        direct, recurrent_grad, projected_grad = gates_vjp_t(jax.tree.map(jnp.add, grad_t, carry))
        _, recurrent_vjp = jax.vjp(lambda s: core.recurrent(core.belief(s)), before_t)
        total = jax.tree.map(jnp.add, direct, recurrent_vjp(recurrent_grad)[0])
        # No gradient crosses an episode start.
        return jax.tree.map(lambda g: jnp.where(is_first_t[:, None], 0, g), total), (recurrent_grad, projected_grad)

    last = jax.tree.map(lambda g: jnp.zeros_like(g[0]), grads)
    state_grad, (recurrent_grads, projected_grads) = jax.lax.scan(
        step, last, (grads, before, gates_vjp, is_first), reverse=True
    )
    _, weights_vjp = jax.vjp(lambda layer: layer(core.belief(before)), core.recurrent)
    core_grad = eqx.tree_at(lambda core: core.recurrent, core, weights_vjp(recurrent_grads)[0])
    return core_grad, projected_grads, None, state_grad


closed_loop.defvjp(_forward, _backward)


def open_loop(core: Core, projected: Float[Array, "S B gates"], state: PyTree, horizon: int) -> list[Array]:
    """Run the open-loop core from all starts at once: b_{t,k} = h_o(b_{t,k-1}, a_{t+k-1}).

    Args:
      core: the cell.
      projected: [S, B, gates] projected actions a_t.
      state: [S, B, ...] closed-loop states at o_t.
      horizon: K, number of steps to simulate.
    Returns:
      K arrays, the simulated beliefs [S-k+1, B, M] for k = 1..K. Starts whose prediction leaves the sequence drop out,
      so no step is spent on them.
    """
    starts = projected.shape[0]
    beliefs = []
    for k in range(1, horizon + 1):
        state = core.step(jax.tree.map(lambda s, k=k: s[: starts - k + 1], state), projected[k - 1 :])
        beliefs.append(core.belief(state))
    return beliefs
