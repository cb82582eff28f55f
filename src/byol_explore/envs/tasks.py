"""The tasks that an agent learns: one for each environment, or several of one world that each episode has one of."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from byol_explore.envs.protocols import EnvSpec, Joinable

AnEnvironment = TypeVar("AnEnvironment")


class Task(NamedTuple):
    """One of them, and where it is played."""

    name: str
    spec: EnvSpec
    env: Any
    number: int | None  # in a world that has several

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of its stages, if it has any."""
        return tuple(getattr(self.env, "stages", ()))


def list_tasks(names: Sequence[str], envs: Sequence[Any]) -> list[Task]:
    """The tasks of environments with these names, in the order of their numbers in trajectories."""
    worlds = join(envs)
    if len(worlds) < len(envs):
        names = [world.spec.name for world in worlds]
    return [task for name, world in zip(names, worlds, strict=True) for task in _tasks_of(name, world)]


def _tasks_of(name: str, world: Any) -> list[Task]:
    if not world.spec.tasks:
        return [Task(name, world.spec, world, None)]
    return [Task(spec.name, spec, world, number) for number, spec in enumerate(world.spec.tasks)]


def count_tasks(envs: Sequence[Any]) -> int:
    return sum(max(1, len(env.spec.tasks)) for env in envs)


def join(envs: Sequence[AnEnvironment]) -> list[AnEnvironment]:
    """One world that has the tasks of all of them if they can be one; themselves if not."""
    first, *others = envs
    if others and isinstance(first, Joinable) and all(type(other) is type(first) for other in others):
        return [first.join(others)]
    return list(envs)
