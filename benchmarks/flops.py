"""Count floating-point operations of a JAX function in matrix products and convolutions."""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr


def count_flops(function: Callable[..., Any], *arguments: Any) -> float:
    """Return multiplications and additions of one call.

    Loops count as often as they run; element-wise operations do not count.
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of_jaxpr(jaxpr: Jaxpr) -> float:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> float:
    name, parameters = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]
        depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        return 2.0 * depth * equation.outvars[0].aval.size
    if name == "conv_general_dilated":
        kernel, dimensions = equation.invars[1].aval, parameters["dimension_numbers"]
        outputs = kernel.shape[dimensions.rhs_spec[0]]
        return 2.0 * equation.outvars[0].aval.size * kernel.size / outputs
    inner = [_of_jaxpr(jaxpr) for value in parameters.values() for jaxpr in _jaxprs(value)]
    if name == "cond":
        return max(inner, default=0.0)
    times = parameters["length"] if name == "scan" else 1
    if name == "shard_map":
        times = parameters["mesh"].size
    return times * sum(inner)


def _jaxprs(value: Any) -> list[Jaxpr]:
    if isinstance(value, ClosedJaxpr):
        return [value.jaxpr]
    if isinstance(value, Jaxpr):
        return [value]
    if isinstance(value, tuple | list):
        return [jaxpr for entry in value for jaxpr in _jaxprs(entry)]
    return []
