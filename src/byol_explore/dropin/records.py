"""What is remembered of learning: metrics of every call, and counts over all of them."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from byol_explore.curiosity.bonus import BonusMemory
from byol_explore.curiosity.vitals import LEAST_PAID, error_growth
from byol_explore.dropin.stream import Stream
from byol_explore.types import Sequence

if TYPE_CHECKING:
    from byol_explore.dropin.learning import Learned

MOST_ROWS = 1000


class Sample(NamedTuple):
    """Sequences, and the memory before them."""

    memory: BonusMemory
    sequence: Sequence


@dataclass(frozen=True)
class Record:
    """Plain data, for a file."""

    calls: int = 0  # of learn
    transitions: int = 0
    updates: int = 0
    paying: int = 0  # updates of calls that paid something
    breaks: int = 0  # streams that were not continued
    ends: int = 0  # episodes with a next one in the same call
    alike: int = 0  # of these, whose last observation is the next one's first
    rows: tuple[dict[str, Any], ...] = field(default=())

    @property
    def metrics(self) -> dict[str, Any]:
        """Of the latest call."""
        return dict(self.rows[-1]) if self.rows else {}


def noted(record: Record, stream: Stream, learned: "Learned") -> Record:
    """With one more call of learn."""
    valid = np.asarray(stream.sequence.valid)
    rewards, uncertainty = learned.reward[valid], learned.uncertainty[valid]
    paying = record.paying + learned.updates * bool(np.mean(rewards) >= LEAST_PAID)
    counts = replace(
        record, calls=record.calls + 1, transitions=record.transitions + rewards.size,
        updates=record.updates + learned.updates, paying=paying, breaks=record.breaks + stream.breaks,
        ends=record.ends + stream.ends, alike=record.alike + stream.alike,
    )  # fmt: skip
    row = {
        "transitions": counts.transitions,
        "learner_steps": counts.updates,
        "uncertainty": float(np.mean(uncertainty)),
        "intrinsic_reward": float(np.mean(rewards)),
        "paid_share": float(np.mean(rewards > 0)),
        "paying_share": paying / counts.updates,
        "streams_broken": stream.breaks,
        "error_growth": error_growth(learned.metrics["prediction_error"].tolist()),
        **{name: value.tolist() for name, value in learned.metrics.items()},
    }
    rows = (*record.rows, row)
    return replace(counts, rows=rows if len(rows) <= MOST_ROWS else (rows[0], *rows[2:]))
