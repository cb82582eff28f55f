"""The options of Atari games."""

import os
from dataclasses import dataclass, replace
from typing import Annotated

from byol_explore.rules import Fraction, NotNegative, OneOf, Positive

RULES = ("paper", "training")


@dataclass(frozen=True)
class AtariSettings:
    """Preprocessing; the defaults are those of the paper's kind of agent."""

    action_repeat: Positive[int] = 4
    """Frames that an action lasts; rewards of them are added up."""
    stack: Positive[int] = 1
    """Frames in an observation; the agent is recurrent and needs one."""
    sticky: Fraction[float] = 0.0
    """Probability that the emulator repeats the last action instead, at every frame (0.25 is usual)."""
    full_action_set: bool = True
    """All 18 actions, or only those that do something in the game."""
    noops: NotNegative[int] = 30
    """An episode begins with a random number of frames without action, up to this many."""
    max_frames: Positive[int] = 108_000
    """Frames after which an episode is cut off."""
    clip_rewards: bool = False
    """Rewards to their sign."""
    life_loss: bool = False
    """Whether a lost life counts as the end of an episode."""
    workers: NotNegative[int] = 0
    """Processes that emulate, per actor; 0 shares the cores among the actors."""
    evaluation: Annotated[str, OneOf(RULES)] = "paper"
    """Rules of evaluations: paper (up to 30 no-ops, no sticky actions, 108,000 frames), or training (as set here)."""

    def for_evaluation(self, rules: str | None = None) -> "AtariSettings":
        """Whole games and the score as the game counts it, by the paper's rules however the agent was trained.

        With the rules "training", given here or as `evaluation`, its own no-ops, sticky actions and time limit are
        kept. What an agent is made for always is: the length of an action, the frames in an observation and the set of
        actions.
        """
        whole = replace(self, clip_rewards=False, life_loss=False, evaluation=rules or self.evaluation)
        if whole.evaluation == "training":
            return whole
        paper = AtariSettings()
        return replace(whole, sticky=paper.sticky, noops=paper.noops, max_frames=paper.max_frames)


def available_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
