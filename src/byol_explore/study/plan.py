"""The runs of a study: configuration, place and command of each."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from byol_explore.envs.families import outside_words
from byol_explore.errors import UserError, unknown
from byol_explore.settings.config import Config, file_name, to_dict
from byol_explore.settings.parts import DistributedConfig
from byol_explore.settings.presets import PRESETS, checked, make_config
from byol_explore.settings.trust import is_outside, require_consent
from byol_explore.settings.words import options
from byol_explore.study.file import MOST_SEEDS, Study, Variant
from byol_explore.study.settings import apply_settings, joined_settings


class PlannedRun(NamedTuple):
    """One run of a study."""

    name: str  # rooms-6/rnd-seed0: where it is in the study's directory
    variant: str
    config: Config
    options: tuple[str, ...]  # behind `byol-explore train`

    def directory(self, study_dir: Path) -> Path:
        return study_dir / self.name

    def log(self, study_dir: Path) -> Path:
        """What its processes print."""
        return study_dir / "logs" / f"{self.name}.log"

    def train_arguments(self, study_dir: Path) -> list[str]:
        """Behind `byol-explore`; continues the run if it has begun."""
        directory = self.directory(study_dir)
        resume = ["--resume"] if (directory / "config.json").exists() else []
        return ["train", *self.options, "--run-dir", str(directory), *resume, "--quiet"]


def plan_runs(study: Study, *, seeds: int | None = None, only: str = "") -> list[PlannedRun]:
    """All runs, every variant of a seed before the next seed; `only` keeps names with that text in them.

    `seeds` are 0, 1, ... instead of the study's; a variant with seeds of its own has its first ones, never others.
    A UserError for the first run whose configuration is wrong.
    """
    require_consent(_outside(study), study.source)
    if not PRESETS.knows(study.preset):
        raise UserError(f"{study.source}: {unknown('preset', study.preset, PRESETS.names())}")
    if seeds is not None and not 1 <= seeds <= MOST_SEEDS:
        raise UserError(f"--seeds is {seeds}: it must be positive, and at most {MOST_SEEDS:,}")
    runs = [
        _planned(study, variant, task, seed)
        for seed in _all_seeds(study, seeds)
        for task in dict.fromkeys(task for variant in study.variants for task in _tasks_of(study, variant))
        for variant in study.variants
        if task in _tasks_of(study, variant) and seed in _seeds_of(study, variant, seeds)
    ]
    _check_names(study, runs)
    chosen = [run for run in runs if only in run.name]
    if not chosen:
        raise UserError(f"--only {only!r} fits none of the {len(runs)} runs: they are called like {runs[0].name}")
    return chosen


def _tasks_of(study: Study, variant: Variant) -> list[str]:
    """Of the runs of a variant, several that one run learns joined by commas."""
    tasks = study.tasks if variant.tasks is None else variant.tasks
    multitask = study.multitask if variant.multitask is None else variant.multitask
    return [",".join(tasks)] if multitask else list(tasks)


def _seeds_of(study: Study, variant: Variant, asked: int | None) -> Sequence[int]:
    if variant.seeds is not None:
        return variant.seeds[:asked]
    return study.seeds if asked is None else range(asked)


def _all_seeds(study: Study, asked: int | None) -> list[int]:
    return list(dict.fromkeys(seed for variant in study.variants for seed in _seeds_of(study, variant, asked)))


def _all_tasks(study: Study) -> list[str]:
    return [*study.tasks, *(task for variant in study.variants for task in variant.tasks or ())]


def _outside(study: Study) -> list[str]:
    """All that the study's file names outside this package."""
    settings = [study.settings, *(variant.settings for variant in study.variants)]
    words = [value for table in settings for value in table.values() if isinstance(value, str)]
    names = [study.preset, *_all_tasks(study), *(variant.method for variant in study.variants), *words]
    env_words = [word for table in settings for word in table.get("env_settings", ())]
    return [name for name in dict.fromkeys(names) if is_outside(name)] + outside_words(_all_tasks(study), env_words)


def folder_name(task: str) -> str:
    """Of the runs on a task, or on several that are joined by commas."""
    several = task.count(",")
    return f"{several + 1}-tasks" if several else file_name(task)


def shell_line(words: Sequence[str]) -> str:
    """A command as one would type it."""
    return shlex.join(["byol-explore", *words])


def check_tasks(study: Study, runs: Sequence[PlannedRun]) -> None:
    """A UserError for a task, an encoder or an extra that is not there; imports JAX, but trains nothing."""
    import equinox as eqx
    import jax

    from byol_explore.envs.registry import make_envs
    from byol_explore.networks.assembly import make_representation
    from byol_explore.run.metrics import check_extras

    different = {
        (run.config.env, run.config.env_settings, run.config.network, run.config.log): run.config for run in runs
    }.values()
    try:
        places = {(config.env, config.env_settings): config.env_ids for config in different}
        envs = {place: make_envs(names, place[1]) for place, names in places.items()}
        for config in different:
            check_extras(config)
            spec = envs[config.env, config.env_settings][0].spec
            eqx.filter_eval_shape(make_representation, config.network, spec, jax.random.key(0))
    except UserError as error:
        raise UserError(f"{study.source}: {error}") from None


def _planned(study: Study, variant: Variant, task: str, seed: int) -> PlannedRun:
    settings = joined_settings(study.settings, variant.settings)
    try:
        steps = variant.steps or study.steps or PRESETS.get(study.preset).config.steps
        given = {"env": task, "seed": seed, "steps": steps}
        if variant.regime is not None:
            given["regime"] = variant.regime
        config = apply_settings(make_config(study.preset, variant.ablation, variant.method, **given), settings)
        _check_alone(config)
        config = checked(config)
    except UserError as error:
        raise UserError(f"{study.source}: variant {variant.name!r}: {error}") from None
    ablation = {} if variant.ablation == "none" else {"ablation": variant.ablation}
    chosen = {"preset": study.preset, "method": variant.method, **ablation, **given}
    name = f"{folder_name(task)}/{variant.name}-seed{seed}"
    return PlannedRun(name, variant.name, config, tuple(options({**chosen, **settings})))


def _check_alone(config: Config) -> None:
    """A UserError for a run of several processes: a study starts one for each run, which would wait for the others."""
    usual = to_dict(DistributedConfig())
    for name, value in to_dict(config.distributed).items():
        if value != usual[name]:
            raise UserError(
                f"distributed.{name} is {value!r}, but every run of a study is one process: leave distributed.* out, "
                "and start runs of several with byol-explore train"
            )


def _check_names(study: Study, runs: Sequence[PlannedRun]) -> None:
    """A UserError for two tasks with the same folder: their runs would be taken for each other."""
    envs: dict[str, str] = {}
    for run in runs:
        if envs.setdefault(run.name, run.config.env) != run.config.env:
            pair = f"{envs[run.name]!r} and {run.config.env!r}"
            raise UserError(
                f"{study.source}: runs on the tasks {pair} would both be kept in {run.name}: make two studies of them"
            )
