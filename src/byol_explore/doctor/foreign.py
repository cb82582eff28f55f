"""A curiosity in somebody's own loop: evidence from what it has logged, and from some of what it learned from last."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from byol_explore.curiosity.base import ask
from byol_explore.curiosity.bonus import Bonus, BonusState
from byol_explore.doctor.evidence import BoundaryProbe, Evidence, Probe, TaskProbe
from byol_explore.doctor.findings import Finding, finding, grade
from byol_explore.doctor.measuring import first_of_each, largest, leak, measure_target, spread_and_rank
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.dropin.records import Record, Sample
from byol_explore.networks.layers import trained
from byol_explore.ops import moments
from byol_explore.ops.batches import flat, timed
from byol_explore.run.finite import first_not_finite
from byol_explore.settings.config import Config
from byol_explore.types import Array, Sequence

NAME = "your environments"  # in what is found
# Of so many episodes, one may end where the next begins; all of them do only if last observations were not given.
FEWEST_ENDS, MANY_ALIKE = 3, 0.5
# Every rollout may begin anew once, where environments were reset; more often than not, something is left out.
MANY_BREAKS = 0.5


class Seen(NamedTuple):
    """A sample through the networks as they are now."""

    embedding: Array  # [T, B, N]
    uncertainty: Array  # [T-1, B]
    reward: Array  # [T-1, B]
    mean: Array  # [] of the normalizer, with the sample in it


def gather_curiosity(curiosity: Curiosity) -> Evidence:
    """All evidence there is of it."""
    settings, record, state = curiosity.settings, curiosity.progress.record, curiosity.progress.state
    config = Config(
        env=NAME, method=curiosity.method, network=settings.network, curiosity=settings.curiosity,
        optimizer=settings.optimizer,
    )  # fmt: skip
    rows: list[dict[str, Any]] = [{**row, "paid_reward": [row["intrinsic_reward"]]} for row in record.rows]
    action = curiosity.spec.action
    if state is None or curiosity.sample is None:
        return Evidence(config, rows, action, None, "nothing was learned since it was made or loaded")
    return Evidence(config, rows, action, _probe(curiosity.bonus, state, curiosity.sample, record))


def check_stream(record: Record, num_envs: int) -> Finding:
    """Whether every rollout begins where the one before ended, and episodes are seen to their ends."""
    check, streams = "stream", record.calls * num_envs
    if not record.calls:
        return finding(check, "unknown", None, "nothing was learned yet")
    broken, alike = record.breaks / streams, record.alike / max(record.ends, 1)
    detail = (f"{record.ends - record.alike:,} of {record.ends:,} episodes end with another observation than the next "
              f"one begins with; {record.breaks:,} of {streams:,} streams did not go on where they were")  # fmt: skip
    if record.ends >= FEWEST_ENDS and alike > MANY_ALIKE:
        return finding(check, grade(bad=alike == 1.0, warning=True), alike, detail,
                       "give the true last observation as next_obs, and mark steps that only reset as skipped: "
                       "byol_explore.dropin.autoreset has an adapter for each way of vector environments")  # fmt: skip
    return finding(check, grade(bad=False, warning=broken > MANY_BREAKS), broken, detail,
                   "give every step of every environment once and in order: where one is left out, recurrent state "
                   "is lost")  # fmt: skip


def _look(bonus: Bonus, state: BonusState, sample: Sample) -> Seen:
    memory, sequence = sample
    view, seen = bonus.view(state.networks, state, memory, sequence)
    method, embedding = state.networks.method, view.embedding
    uncertainty = ask(method, state.method, view, seen).uncertainty
    if method.has_target and not method.reads_representation:  # it sees through the target alone
        observation = jax.tree.map(flat, seen.observation)
        embedding = timed(method.target(state.method)(observation), len(sequence.is_first))
    normalizer, reward = bonus.judge(state.rewards, uncertainty, jnp.asarray(sequence.valid))
    return Seen(embedding, uncertainty, reward, normalizer.raw.mean)


_looked = jax.jit(_look, static_argnums=0)


def _probe(bonus: Bonus, state: BonusState, sample: Sample, record: Record) -> Probe:
    seen = jax.device_get(_looked(bonus, state, sample))
    valid, decay = np.asarray(sample.sequence.valid), bonus.curiosity.normalizer_decay
    now, method = seen.uncertainty[valid], state.networks.method
    raw, encoder = state.rewards.raw, state.networks.representation.encoder
    expected = decay * float(raw.mean) + (1.0 - decay) * float(np.mean(now))
    between = ~valid & np.asarray(sample.sequence.seen)[1:]
    state_now = jax.device_get(state)

    def uncertainty_of(sequence: Sequence) -> Array:
        return _looked(bonus, state, sample._replace(sequence=sequence)).uncertainty

    return Probe(
        steps=record.transitions,
        learner_steps=record.updates,
        tasks={NAME: _task(seen, sample, float(np.mean(seen.reward[valid])))},
        target=measure_target(method, state.method, encoder) if method.has_target else None,
        boundary=BoundaryProbe(
            ends=int(np.sum(between)),
            transitions=int(np.sum(valid)),
            reward=float(np.max(np.abs(seen.reward[~valid]), initial=0.0)),
            counted=abs(float(seen.mean) - expected) / max(abs(expected), 1e-12),
            leak=leak(sample.sequence, seen.uncertainty, uncertainty_of, alone=method.contrasts),
        ),
        uncertainty=(float(np.mean(now)), float(np.std(now))),
        normalizer=(float(moments.corrected(raw, decay)[0]), float(bonus.deviation(state.rewards))),
        intrinsic_reward=float(np.mean(seen.reward[valid])),
        paid_share=float(np.mean(seen.reward[valid] > 0)),
        temperature=None,
        multipliers={},
        largest={
            "parameters": largest(trained((state_now.networks, state_now.method))),
            "optimizer": largest(state_now.optimizer),
            "statistics": largest(state_now.rewards),
        },
        not_finite=first_not_finite(state_now),
    )


def _task(seen: Seen, sample: Sample, intrinsic: float) -> TaskProbe:
    """What is known without an agent."""
    there = np.asarray(sample.sequence.seen)
    distinct = first_of_each(jax.tree.map(lambda x: np.asarray(x)[there], sample.sequence.observation))
    spread, rank = spread_and_rank(np.asarray(seen.embedding)[there][distinct])
    return TaskProbe(
        distinct=len(distinct), spread=spread, rank=rank, intrinsic=intrinsic, extrinsic=0.0, entropy=None, stddev=None,
        target_mean=0.0, target_stddev=0.0, popart_mean=0.0, popart_scale=1.0, explained=None,
    )  # fmt: skip
