"""When a study will be finished."""

import heapq
from collections.abc import Collection

from byol_explore.study.state import RunState


def seconds_left(states: Collection[RunState], parallel: int) -> float | None:
    """The runs that are left, each on the first of the `parallel` places to become free; None if no speed is known.

    A running run goes on at its own speed; one that has not begun will be as quick as the others were on average.
    """
    begun = [state for state in states if state.steps > 0 and state.seconds > 0]
    if all(state.state == "done" for state in states):
        return 0.0
    if not begun:
        return None
    average = sum(state.steps for state in begun) / sum(state.seconds for state in begun)
    left = {"running": [], "missing": []}
    for state in states:
        if state.state in left:
            own = state.steps / state.seconds if state.state == "running" and state in begun else average
            left[state.state].append(max(0, state.total_steps - state.steps) / own)
    places = [0.0] * parallel
    for seconds in (*left["running"], *left["missing"]):
        heapq.heapreplace(places, places[0] + seconds)
    return max(places)
