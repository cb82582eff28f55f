"""Run all checks on a run or on a Curiosity; describe the machine that they run on."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from byol_explore.config.config import Config
from byol_explore.config.presets import make_config
from byol_explore.doctor import agent_checks, curiosity_checks
from byol_explore.doctor.evidence import Evidence, Finding, collect_evidence, make_finding, worst_first
from byol_explore.doctor.measurements import measure_curiosity
from byol_explore.dropin.curiosity import Curiosity
from byol_explore.dropin.learning import Record
from byol_explore.errors import UserError
from byol_explore.runtime.make import make_runtime, make_training_envs, resolve_devices
from byol_explore.utils.formatting import error_text, one_line
from byol_explore.utils.packages import cache_dir, enable_compilation_cache, missing_extras, versions
from byol_explore.utils.processes import available_cores

CHECKS: dict[str, Callable[[Evidence], Finding]] = {
    "target": curiosity_checks.check_target,
    "embedding_collapse": curiosity_checks.check_embedding,
    "horizon_growth": curiosity_checks.check_horizon,
    "normalizer": curiosity_checks.check_normalizer,
    "intrinsic_reward": agent_checks.check_intrinsic_reward,
    "episode_boundaries": curiosity_checks.check_boundaries,
    "mixing": agent_checks.check_mixing,
    "temperature": agent_checks.check_temperature,
    "kl": agent_checks.check_kl,
    "kl_multipliers": agent_checks.check_multipliers,
    "value": agent_checks.check_value,
    "entropy": agent_checks.check_entropy,
    "finite": agent_checks.check_numbers,
    "gradient": agent_checks.check_gradient,
}
_OF_AGENT = {"mixing", "temperature", "kl", "kl_multipliers", "value", "entropy"}
CURIOSITY_CHECKS = {name: check for name, check in CHECKS.items() if name not in _OF_AGENT}
ENV_NAME = "your environments"  # a Curiosity does not know the name of its environments
# Share of episodes whose last observation equals the next episode's first. A few may coincide; if all do, the caller
# does not pass the true last observations.
MIN_ENDS, MAX_REPEATED = 3, 0.5
# Share of streams that do not continue where the previous rollout ended. Environments may be reset between rollouts
# now and then; if most streams break, steps are left out.
MAX_BROKEN = 0.5


def run_checks(evidence: Evidence, checks: Mapping[str, Callable[[Evidence], Finding]] = CHECKS) -> list[Finding]:
    """Return one finding per check, worst first."""
    return worst_first([check(evidence)._replace(check=name) for name, check in checks.items()])


def diagnose(subject: Path | str | Curiosity) -> list[Finding]:
    """Check whether training works as it should.

    Args:
      subject: a run directory, or the `Curiosity` of a training loop of your own.
    Returns:
      One `Finding` per check, worst first.
    """
    if not isinstance(subject, str | Path | Curiosity):
        raise UserError(f"diagnose takes a run directory or a Curiosity, not {subject!r}")
    if not isinstance(subject, Curiosity):
        if Path(subject).is_file():
            raise UserError(f"{subject} is a file: give diagnose a run directory, or Curiosity.load(...) of that file")
        return run_checks(collect_evidence(subject))
    stream = check_stream(subject.progress.record, subject.num_envs)
    return run_checks(collect_curiosity_evidence(subject), {**CURIOSITY_CHECKS, "stream": lambda _: stream})


def collect_curiosity_evidence(curiosity: Curiosity) -> Evidence:
    """Collect the evidence of a Curiosity: its log, and measurements of the sequences that it learned from last."""
    settings, record, state = curiosity.settings, curiosity.progress.record, curiosity.progress.state
    config = Config(
        env=ENV_NAME, method=curiosity.method, network=settings.network, curiosity=settings.curiosity,
        optimizer=settings.optimizer,
    )  # fmt: skip
    rows: list[dict[str, Any]] = [
        {**row, "intrinsic_reward_per_task": [row["intrinsic_reward"]]} for row in record.rows
    ]
    action, sample = curiosity.spec.action, curiosity.sample
    if state is None or sample is None:
        return Evidence(config, rows, action, None, "nothing was learned since it was made or loaded")
    return Evidence(config, rows, action, measure_curiosity(curiosity.learner, state, sample, record, ENV_NAME))


def check_stream(record: Record, num_envs: int) -> Finding:
    """Check that rollouts begin where the previous ones ended, and that episodes end with their true observation."""
    streams, ends, repeated = record.calls * num_envs, record.episode_ends, record.repeated_final_obs
    if not record.calls:
        return Finding("", "no-data", None, "nothing was learned yet")
    broken, repeated_share = record.discontinuities / streams, repeated / max(ends, 1)
    detail = (
        f"{ends - repeated:,} of {ends:,} episodes end with another observation than the next one begins with; "
        f"{record.discontinuities:,} of {streams:,} streams did not go on where they were"
    )
    if ends >= MIN_ENDS and repeated_share > MAX_REPEATED:
        advice = (
            "give the true last observation as next_obs, and mark steps that only reset as skipped: "
            "byol_explore.dropin.autoreset has an adapter for each way of vector environments"
        )
        return make_finding(repeated_share, detail, advice, fail=repeated_share == 1.0, warn=True)
    advice = "give every step of every environment once and in order: where one is left out, recurrent state is lost"
    return make_finding(broken, detail, advice, warn=broken > MAX_BROKEN)


WRONG_JAXLIB = {
    "0.10.2": "it computes wrong values on CPUs (jax issue 39103): install 0.10.1",
    "0.11.0": "it crashes on CPUs (jax issue 39257): install 0.10.1",
}
_SIZE, _REPEATS = 1024, 5  # of the matrices, and of the products
_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Fact(NamedTuple):
    """A line of the overview."""

    name: str
    value: str
    is_problem: bool = False


def describe_system(*, with_speed: bool = True) -> Iterator[Fact]:
    """Yield the facts one by one; those with a speed come last and take longest: the default agent is compiled."""
    yield Fact("versions", ", ".join(f"{name} {version}" for name, version in versions().items()))
    wrong = WRONG_JAXLIB.get(versions().get("jaxlib", ""))
    yield Fact("jaxlib", wrong or "no version that is known to be wrong", bool(wrong))
    devices = jax.devices()
    yield Fact("devices", f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})")
    yield Fact("cores", f"{available_cores()} of {os.cpu_count()}")
    yield Fact("memory", describe_memory())
    missing = missing_extras()
    yield Fact("extras", f"without {', '.join(missing)}" if missing else "all installed")
    for name, directory in (("cache", cache_dir()), ("working directory", Path.cwd())):
        problem = write_problem(directory)
        yield Fact(name, f"{directory}: {problem or describe_space(directory)}", bool(problem))
    if with_speed:
        yield Fact("matrix product", f"{matrix_gigaflops():.1f} GFLOP/s, float32, {_SIZE} x {_SIZE}")
        yield Fact("default agent", f"{default_steps_per_second():,.0f} steps/s, compiled")


def describe_memory() -> str:
    """Describe the memory that this process may use, limits of its control group among it."""
    pages = {name: os.sysconf(name) for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES")}
    size = os.sysconf("SC_PAGE_SIZE")
    text = f"{pages['SC_AVPHYS_PAGES'] * size / 1e9:.1f} GB free of {pages['SC_PHYS_PAGES'] * size / 1e9:.1f} GB"
    texts = [path.read_text().strip() for path in map(Path, _GROUP_LIMITS) if path.is_file()]
    limit = min((int(each) for each in texts if each.isdigit()), default=0)
    return f"{text}, limited to {limit / 1e9:.1f} GB" if 0 < limit < pages["SC_PHYS_PAGES"] * size else text


def write_problem(directory: Path) -> str | None:
    """Describe why nothing can be written to a directory, or to the nearest one that exists; None if it can."""
    place = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"0")
    except OSError as error:
        return f"cannot be written ({one_line(error_text(error))})"
    return None


def describe_space(directory: Path) -> str:
    place = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return f"{shutil.disk_usage(place).free / 1e9:.1f} GB free"


def _shortest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some calls; the first one, which compiles, does not count."""
    jax.block_until_ready(work())
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - began)
    return min(times)


def matrix_gigaflops() -> float:
    """Measure the speed of a product of two matrices on the first device."""
    matrix = jnp.ones((_SIZE, _SIZE), jnp.float32)
    multiply = jax.jit(lambda x: x @ x)
    return 2 * _SIZE**3 / _shortest(lambda: multiply(matrix)) / 1e9


def default_steps_per_second() -> float:
    """Measure acting and learning of the default agent in its environment."""
    enable_compilation_cache()
    config = resolve_devices(make_config("grid"))
    runtime = make_runtime(config, make_training_envs(config))
    state = runtime.shard(runtime.init_on_host(config.seed))
    state, _ = runtime.dispatch(state)
    began = time.perf_counter()
    state, _ = runtime.dispatch(state)
    jax.block_until_ready(state)
    return config.steps_per_dispatch / (time.perf_counter() - began)
