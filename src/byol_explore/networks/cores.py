"""Recurrent cores. The input half of a cell is one matrix product over all time steps; only the rest is scanned."""

from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.networks.layers import Linear
from byol_explore.types import PyTree


class Core(Protocol):
    """A recurrent cell split into the part that needs the state and the part that does not."""

    gates: int  # width of a projected input

    def initial_state(self, batch: tuple[int, ...]) -> PyTree: ...
    def step(self, state: PyTree, projected: Array) -> PyTree: ...
    def belief(self, state: PyTree) -> Array: ...


class GRU(eqx.Module):
    """Gated recurrent unit (Cho et al., 2014), with the reset gate after the matrix product so that there is one."""

    recurrent: Linear
    size: int = eqx.field(static=True)

    def __init__(self, size: int, key: Array) -> None:
        self.recurrent = Linear(size, 3 * size, key)
        self.size = size

    @property
    def gates(self) -> int:
        return 3 * self.size

    def initial_state(self, batch: tuple[int, ...]) -> Float[Array, "*batch M"]:
        return jnp.zeros((*batch, self.size))

    def step(
        self, state: Float[Array, "*batch M"], projected: Float[Array, "*batch gates"]
    ) -> Float[Array, "*batch M"]:
        x_reset, x_update, x_new = jnp.split(projected, 3, axis=-1)
        h_reset, h_update, h_new = jnp.split(self.recurrent(state), 3, axis=-1)
        reset = jax.nn.sigmoid(x_reset + h_reset)
        update = jax.nn.sigmoid(x_update + h_update)
        candidate = jnp.tanh(x_new + reset * h_new)
        return state + update * (candidate - state)

    def belief(self, state: Float[Array, "*batch M"]) -> Float[Array, "*batch M"]:
        return state


class LSTMState(NamedTuple):
    hidden: Array  # [..., M]
    cell: Array  # [..., M]


class LSTM(eqx.Module):
    """Long short-term memory with the forget gate's bias at one."""

    recurrent: Linear
    size: int = eqx.field(static=True)

    def __init__(self, size: int, key: Array) -> None:
        self.recurrent = Linear(size, 4 * size, key)
        self.size = size

    @property
    def gates(self) -> int:
        return 4 * self.size

    def initial_state(self, batch: tuple[int, ...]) -> LSTMState:
        return LSTMState(jnp.zeros((*batch, self.size)), jnp.zeros((*batch, self.size)))

    def step(self, state: LSTMState, projected: Float[Array, "*batch gates"]) -> LSTMState:
        write, candidate, forget, read = jnp.split(projected + self.recurrent(state.hidden), 4, axis=-1)
        cell = jax.nn.sigmoid(forget + 1.0) * state.cell + jax.nn.sigmoid(write) * jnp.tanh(candidate)
        return LSTMState(jax.nn.sigmoid(read) * jnp.tanh(cell), cell)

    def belief(self, state: LSTMState) -> Float[Array, "*batch M"]:
        return state.hidden


CORES = {"gru": GRU, "lstm": LSTM}


def reset_where(core: Core, is_first: Bool[Array, "*batch"], state: PyTree) -> PyTree:
    """The initial state where an episode begins, the given one elsewhere."""
    initial = core.initial_state(is_first.shape)
    return jax.tree.map(lambda i, s: jnp.where(is_first[..., None], i, s), initial, state)


def closed_loop(
    core: Core, projected: Float[Array, "T B gates"], is_first: Bool[Array, "T B"], state: PyTree
) -> PyTree:
    """b_t = h_c(b_{t-1}, a_{t-1}, f(o_t)) along a sequence, reset by `is_first` alone; all states [T, B, ...]."""

    def step(carry: PyTree, inputs: tuple[Array, Array]) -> tuple[PyTree, PyTree]:
        projected_t, is_first_t = inputs
        carry = core.step(reset_where(core, is_first_t, carry), projected_t)
        return carry, carry

    return jax.lax.scan(step, state, (projected, is_first))[1]


def open_loop(core: Core, projected: Float[Array, "S B gates"], state: PyTree, horizon: int) -> list[Array]:
    """b_{t,k} = h_o(b_{t,k-1}, a_{t+k-1}) from all starts at once: simulated beliefs [S-k+1, B, M] for k = 1..K.

    `projected[t]` is the projected action a_t, `state[t]` the closed-loop state at o_t. A start whose window
    would leave the sequence drops out, so no step is spent on it.
    """
    starts = projected.shape[0]
    beliefs = []
    for k in range(1, horizon + 1):
        state = core.step(jax.tree.map(lambda s, k=k: s[: starts - k + 1], state), projected[k - 1 :])
        beliefs.append(core.belief(state))
    return beliefs
