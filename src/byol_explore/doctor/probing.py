"""The newest checkpoint of a run, restored, and one rollout with it in the run's own environments."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from byol_explore.doctor.evidence import Probe, TargetProbe
from byol_explore.doctor.measuring import measure_target, probe_rollout
from byol_explore.envs.host import AnyEnvironment, HostEnvironment
from byol_explore.envs.tasks import count_tasks, list_tasks
from byol_explore.errors import UserError
from byol_explore.learner import Learner
from byol_explore.learner_state import LearnerState
from byol_explore.run.checkpoint import Checkpoints
from byol_explore.runtime.anakin import ActorState, Anakin
from byol_explore.runtime.choosing import training_envs
from byol_explore.runtime.compilation import enable_compilation_cache
from byol_explore.runtime.host_actor import HostActor
from byol_explore.settings.config import Config
from byol_explore.spaces import ActionSpec
from byol_explore.types import Trajectory

MOST_ROLLOUTS = 12  # until an episode ends inside one


class Probed(NamedTuple):
    probe: Probe | None
    action: ActionSpec | None
    reason: str = ""  # why there is no probe
    damaged: Sequence[str] = ()


def probe_run(directory: Path, config: Config) -> Probed:
    """Restore, act and measure; without a whole checkpoint or the environment, the reason."""
    checkpoints = Checkpoints(directory / "checkpoints")
    action = None
    try:
        envs = training_envs(config)
        action = envs[0].spec.action
        if not checkpoints.steps():
            return Probed(None, action, "the run has no checkpoint")
        enable_compilation_cache()
        patient = _Patient(config, envs, checkpoints)
        return Probed(patient.probe(), action, damaged=patient.damaged)
    except UserError as error:
        return Probed(None, action, str(error))


class _Patient:
    """A restored learner and the environments to look at it in."""

    def __init__(self, config: Config, envs: Sequence[AnyEnvironment], checkpoints: Checkpoints) -> None:
        self.config, self.envs, self.checkpoints = config, envs, checkpoints
        self.learner = Learner(config, envs[0].spec, count_tasks(envs))
        self.template: LearnerState = jax.eval_shape(self.learner.init, jax.random.key(0))
        restored = checkpoints.restore(self.template, part="learner")
        self.state: LearnerState = restored.state
        self.step: int = restored.meta["step"]
        self.damaged = restored.damaged

    def probe(self) -> Probe:
        trajectory = self._rollout()
        target = self._target() if self.state.online.curiosity.has_target else None
        names = [task.name for task in list_tasks(self.config.env_ids, self.envs)]
        return probe_rollout(self.learner, self.state, trajectory, names, self.step, target)

    def _rollout(self) -> Trajectory:
        """The first rollout in which an episode ends, or the last of those that one waits for."""
        outside = isinstance(self.envs[0], HostEnvironment)
        rollouts = self._outside() if outside else self._inside()
        try:
            trajectory = next(rollouts)
            for _ in range(MOST_ROLLOUTS - 1):
                if np.any(trajectory.is_first[1:]):
                    break
                trajectory = next(rollouts)
            return trajectory
        finally:
            rollouts.close()

    def _inside(self) -> Generator[Trajectory]:
        """From where the checkpoint's environments are, so that some are near the end of an episode."""
        anakin = Anakin(self.config, self.envs, jax.devices()[:1])  # pyright: ignore[reportArgumentType]
        actor = self._actor_state(anakin)
        rollout: Callable[..., Any] = jax.jit(anakin.rollout)
        while True:
            actor, trajectory, _ = rollout(self.state.acting, actor)
            yield jax.device_get(trajectory)

    def _actor_state(self, anakin: Anakin) -> ActorState:
        """Trained on several devices or on one, all environments are now on this one."""
        template = jax.eval_shape(lambda: anakin.init(0, restored=True)).actor
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), max(1, self.config.runtime.devices)))
        whole = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        template = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), template._replace(key=keys)
        )
        return self.checkpoints.restore(template, step=self.step, part="actor").state

    def _outside(self) -> Generator[Trajectory]:
        runtime, seed = self.config.runtime, self.config.seed
        actor = HostActor(
            self.envs, runtime.batch_size, runtime.sequence_length, jax.random.key(seed), seed,  # pyright: ignore[reportArgumentType]
            tasks=self.config.tasks,
        )  # fmt: skip
        try:
            while True:
                yield actor.rollout(self.state.acting).trajectory
        finally:
            actor.close()

    def _target(self) -> TargetProbe:
        earlier = [step for step in self.checkpoints.steps() if step < self.step]
        before = None
        if earlier:
            try:
                before = self.checkpoints.restore(
                    self.template.curiosity, step=earlier[-1], part="learner.curiosity"
                ).state
            except UserError:  # damaged
                before = None
        online = self.state.online
        return measure_target(online.curiosity, self.state.curiosity, online.actor.curious_encoder, before)
