"""By which rules a task is evaluated, where the environment has rules for that."""

from collections.abc import Iterable, Sequence
from typing import Any

from byol_explore.envs.base import Evaluated
from byol_explore.envs.host import AnyEnvironment
from byol_explore.errors import UserError, unknown


def evaluation_envs(envs: Sequence[AnyEnvironment], rules: str | None = None) -> list[AnyEnvironment]:
    """The same tasks with the scores that others report, or by rules that somebody asks for."""
    if rules is not None:
        known = dict.fromkeys(name for env in envs if isinstance(env, Evaluated) for name in env.rule_sets)
        if not known:
            names = ", ".join(env.spec.name for env in envs)
            raise UserError(f"rules {rules!r}: {names} has no rules to choose from: leave them out")
        if rules not in known:
            raise unknown("rules", rules, list(known))
    return [
        env.for_evaluation(rules if rules in env.rule_sets else None) if isinstance(env, Evaluated) else env
        for env in envs
    ]


def rules_of(envs: Iterable[AnyEnvironment]) -> dict[str, Any]:
    """What the environments say of their rules; those of one family have the same."""
    return {name: value for env in envs if isinstance(env, Evaluated) for name, value in env.rules.items()}
