"""The options of Gymnasium's environments."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from byol_explore.rules import OneOf, Positive

ENTRY_POINT = "vector_entry_point"
VECTORIZATIONS = ("sync", "async", ENTRY_POINT)


@dataclass(frozen=True)
class GymnasiumSettings:
    """How an environment is made; the defaults are what it is registered with."""

    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of gymnasium.make, a word each: kwargs.render_mode=human."""
    wrappers: tuple[str, ...] = ()
    """Import paths of wrappers around every environment, the innermost first: my_package:Wrapper, several with +."""
    vectorization: Annotated[str, OneOf(VECTORIZATIONS)] = "sync"
    """One after the other in this process (sync), a process each (async), or the environment's own
    (vector_entry_point), which gives way to sync if it resets in another way than Gymnasium's NEXT_STEP."""
    max_steps: Positive[int | None] = None
    """Steps after which an episode is cut off; none is the limit that the environment is registered with."""
