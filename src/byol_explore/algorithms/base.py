"""What an algorithm is to the learner: how rewards become targets, and what the policy's loss is."""

from typing import ClassVar, NamedTuple

from byol_explore.errors import lacking
from byol_explore.settings.config import Config
from byol_explore.spaces import ActionSpec
from byol_explore.types import Action, Array, Policy, PyTree


class Choices(NamedTuple):
    """Policies and what they chose, flat over time and environments: [n, ...]."""

    policy: Policy  # that is learned
    target: Policy  # that it must stay near to
    behaviour: Policy  # that acted
    action: Action
    valid: Array  # [n] bool


class PolicyLoss(NamedTuple):
    """A policy's loss and what can be said about it."""

    loss: Array  # [] of the policy and of the duals
    metrics: dict[str, Array]
    checks: tuple[PyTree, ...]  # what must be finite, in the order of `Algorithm.checks`


class Algorithm:
    """Learns a policy from advantages. Holds settings and no state; what it trains itself are its duals."""

    judges_rollouts: ClassVar[bool] = False
    """Whether uncertainties, rewards and advantages are computed once per rollout, with the parameters before its first
    update, and statistics move once per rollout; else all of it happens anew for every batch."""
    checks: ClassVar[tuple[str, ...]] = ("policy loss",)
    """What must be finite of its loss, by the names that a divergence is reported by."""
    needs_target: ClassVar[bool] = False
    """Whether its loss reads `Choices.target`."""

    def __init__(self, config: Config, action: ActionSpec) -> None:
        self.config, self.action = config, action

    def initial_duals(self) -> PyTree:
        """What is trained beside the networks, with an optimizer of its own."""
        return ()

    def project(self, duals: PyTree) -> PyTree:
        """The duals that are allowed nearest to these."""
        return duals

    def acting_period(self, updates: int) -> int:
        """Learner steps after which the policy that acts is refreshed, where a rollout is learned from by `updates`."""
        return updates

    def epochs(self) -> int:
        """How often a rollout is learned from."""
        return 1

    def order(self, key: Array, count: int) -> Array | None:
        """The order [epochs * count] in which the environments of a rollout are learned from; None is as they are."""
        return None

    def targets(self, value: Array, reward: Array, discount: Array, valid: Array) -> tuple[Array, Array]:
        """Value targets and advantages [T-1, B] from values [T, B] and what happened between them."""
        raise lacking("algorithm", type(self), "targets")

    def loss(self, duals: PyTree, choices: Choices, advantage: Array) -> PolicyLoss:
        """Of advantages [n], the entropy bonus left out."""
        raise lacking("algorithm", type(self), "loss")
