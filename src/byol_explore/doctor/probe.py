"""Restore the newest checkpoint of a run and act for one rollout in the run's own environments."""

import contextlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from byol_explore.agent.learner import Learner
from byol_explore.agent.state import LearnerState
from byol_explore.config.config import Config
from byol_explore.doctor.evidence import Evidence, Measurements, Row, TargetMeasurement
from byol_explore.doctor.measurements import measure_rollout, measure_target
from byol_explore.envs.interface import AnyEnvironment, HostEnvironment, count_tasks, list_tasks
from byol_explore.errors import UserError
from byol_explore.runtime.anakin import Anakin
from byol_explore.runtime.make import make_training_envs
from byol_explore.runtime.rollouts import HostActor
from byol_explore.storage.checkpoint import Checkpoints
from byol_explore.types import Trajectory
from byol_explore.utils.packages import enable_compilation_cache

MAX_ROLLOUTS = 12  # that are tried until an episode ends inside one


def probe_run(directory: Path, config: Config, rows: list[Row]) -> Evidence:
    """Restore, act and measure; without a checkpoint or the environment the evidence has the reason."""
    checkpoints = Checkpoints(directory / "checkpoints")
    action = None
    try:
        envs = make_training_envs(config)
        action = envs[0].spec.action
        if not checkpoints.steps():
            return Evidence(config, rows, action, None, "the run has no checkpoint")
        enable_compilation_cache()
        probe = _Probe(config, envs, checkpoints)
        return Evidence(config, rows, action, probe.measure(), damaged=tuple(probe.damaged))
    except UserError as error:
        return Evidence(config, rows, action, None, str(error))


class _Probe:
    """A restored learner with the environments of its run."""

    def __init__(self, config: Config, envs: Sequence[AnyEnvironment], checkpoints: Checkpoints) -> None:
        self.config, self.envs, self.checkpoints = config, envs, checkpoints
        self.learner = Learner(config, envs[0].spec, count_tasks(envs))
        self.template: LearnerState = jax.eval_shape(self.learner.init, jax.random.key(0))
        restored = checkpoints.restore(self.template, part="learner")
        self.state: LearnerState = restored.state
        self.step: int = restored.meta["step"]
        self.damaged = restored.skipped

    def measure(self) -> Measurements:
        trajectory = self._rollout()
        target = self._target() if self.state.online.curiosity.has_target_encoder else None
        names = [task.name for task in list_tasks(self.config.env_ids, self.envs)]
        return measure_rollout(self.learner, self.state, trajectory, names, self.step, target)

    def _rollout(self) -> Trajectory:
        """Return the first rollout in which an episode ends, or the last of `MAX_ROLLOUTS`."""
        rollouts = self._host_rollouts() if isinstance(self.envs[0], HostEnvironment) else self._jit_rollouts()
        with contextlib.closing(rollouts):
            trajectory = next(rollouts)
            for _ in range(MAX_ROLLOUTS - 1):
                if np.any(trajectory.is_first[1:]):
                    break
                trajectory = next(rollouts)
            return trajectory

    def _jit_rollouts(self) -> Generator[Trajectory]:
        """Yield rollouts from the environment states of the checkpoint."""
        # Restored states are spread over an episode, so that some are near its end.
        anakin = Anakin(self.config, self.envs, jax.devices()[:1])  # pyright: ignore[reportArgumentType]
        template = anakin.state_shapes().actor
        device = jax.sharding.SingleDeviceSharding(jax.devices()[0])  # the run may have used several
        template = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), template)
        actor = self.checkpoints.restore(template, step=self.step, part="actor").state
        rollout: Callable[..., Any] = jax.jit(anakin.rollout)
        while True:
            actor, trajectory, _ = rollout(self.state.target_actor, actor)
            yield jax.device_get(trajectory)

    def _host_rollouts(self) -> Generator[Trajectory]:
        runtime, seed = self.config.runtime, self.config.seed
        actor = HostActor(
            self.envs, runtime.batch_size, runtime.sequence_length, jax.random.key(seed), seed,  # pyright: ignore[reportArgumentType]
            tasks=self.config.task_sampling,
        )  # fmt: skip
        try:
            while True:
                yield actor.rollout(self.state.target_actor).trajectory
        finally:
            actor.close()

    def _target(self) -> TargetMeasurement:
        earlier = [step for step in self.checkpoints.steps() if step < self.step]
        before, part = None, "learner.method_state"
        with contextlib.suppress(UserError):  # the earlier checkpoint may be damaged
            if earlier:
                before = self.checkpoints.restore(self.template.method_state, step=earlier[-1], part=part).state
        online = self.state.online
        return measure_target(online.curiosity, self.state.method_state, online.actor.curiosity_encoder, before)
