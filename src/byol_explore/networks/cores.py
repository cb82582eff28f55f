"""Recurrent cores. The input half of a cell is one matrix product over all time steps; only the rest is scanned."""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from byol_explore.networks.layers import Linear
from byol_explore.types import PyTree


class Core(eqx.Module):
    """A recurrent cell in three parts: what it reads, what its own belief adds, and the gates that combine both."""

    recurrent: eqx.AbstractVar[Linear]  # from a belief to what it adds: all that is trained of a core

    @property
    @abstractmethod
    def gates(self) -> int:
        """Width of a projected input, and of what a belief adds."""

    @abstractmethod
    def initial_state(self, batch: tuple[int, ...]) -> Any: ...

    @abstractmethod
    def belief(self, state: Any) -> Array: ...

    @abstractmethod
    def combine(self, state: Any, recurrent: Array, projected: Array) -> Any:
        """The next state, element by element."""

    def step(self, state: Any, projected: Array) -> Any:
        return self.combine(state, self.recurrent(self.belief(state)), projected)


class GRU(Core):
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

    def combine(
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

    def combine(
        self, state: LSTMState, recurrent: Float[Array, "*batch gates"], projected: Float[Array, "*batch gates"]
    ) -> LSTMState:
        write, candidate, forget, read = jnp.split(projected + recurrent, 4, axis=-1)
        cell = jax.nn.sigmoid(forget + 1.0) * state.cell + jax.nn.sigmoid(write) * jnp.tanh(candidate)
        return LSTMState(jax.nn.sigmoid(read) * jnp.tanh(cell), cell)

    def belief(self, state: LSTMState) -> Float[Array, "*batch M"]:
        return state.hidden


CORES = {"gru": GRU, "lstm": LSTM}


def reset_where(core: Core, is_first: Bool[Array, "*batch"], state: PyTree) -> PyTree:
    """The initial state where an episode begins, the given one elsewhere."""
    initial = core.initial_state(is_first.shape)
    return jax.tree.map(lambda i, s: jnp.where(is_first[..., None], i, s), initial, state)


@jax.custom_vjp
def closed_loop(
    core: Core, projected: Float[Array, "T B gates"], is_first: Bool[Array, "T B"], state: PyTree
) -> PyTree:
    """b_t = h_c(b_{t-1}, a_{t-1}, f(o_t)) along a sequence, reset by `is_first` alone; all states [T, B, ...].

    Backwards the gradient of the states goes step by step; that of the core's weights is taken of all steps at once
    when it has been through: one large product in place of T small ones, and with several devices one sum over them
    in place of T. What the gates computed on the way there is kept for the way back, as it is in any scan.
    """

    return _forwards(core, projected, is_first, state)[0]


def _forwards(core: Core, projected: Array, is_first: Array, state: PyTree) -> tuple[PyTree, tuple[PyTree, ...]]:
    def step(carry: PyTree, inputs: tuple[Array, Array]) -> tuple[PyTree, tuple[PyTree, PyTree, PyTree]]:
        projected_t, is_first_t = inputs
        before = reset_where(core, is_first_t, carry)
        carry, combined = jax.vjp(core.combine, before, core.recurrent(core.belief(before)), projected_t)
        return carry, (carry, before, combined)

    states, before, combined = jax.lax.scan(step, state, (projected, is_first))[1]
    return states, (core, is_first, before, combined)


def _backwards(kept: tuple[PyTree, ...], gradient: PyTree) -> tuple[Core, Array, None, PyTree]:
    core, is_first, before, combined = kept

    def step(carry: PyTree, inputs: PyTree) -> tuple[PyTree, tuple[Array, Array]]:
        gradient_t, before_t, combined_t, is_first_t = inputs
        direct, to_recurrent, to_projected = combined_t(jax.tree.map(jnp.add, gradient_t, carry))
        _, reread = jax.vjp(lambda s: core.recurrent(core.belief(s)), before_t)
        reached = jax.tree.map(jnp.add, direct, reread(to_recurrent)[0])
        return jax.tree.map(lambda g: jnp.where(is_first_t[:, None], 0, g), reached), (to_recurrent, to_projected)

    last = jax.tree.map(lambda g: jnp.zeros_like(g[0]), gradient)
    first, gradients = jax.lax.scan(step, last, (gradient, before, combined, is_first), reverse=True)
    to_recurrent, to_projected = gradients
    _, at_once = jax.vjp(lambda layer: layer(core.belief(before)), core.recurrent)
    to_core = eqx.tree_at(lambda core: core.recurrent, core, at_once(to_recurrent)[0])
    return to_core, to_projected, None, first


closed_loop.defvjp(_forwards, _backwards)


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
