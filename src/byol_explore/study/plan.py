"""Planned runs of a study: their configurations, directories and commands."""

import functools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from byol_explore.config.config import Config, env_dir_name, to_dict
from byol_explore.config.overrides import override, to_cli_args
from byol_explore.config.presets import PRESETS, make_config, validate_config
from byol_explore.config.sections import DistributedConfig
from byol_explore.envs.names import is_external
from byol_explore.errors import UserError, unknown_name
from byol_explore.registry import require_consent
from byol_explore.storage.run_directory import TRIALS
from byol_explore.study.file import MAX_SEEDS, Study, Variant


class PlannedRun(NamedTuple):
    """One run of a study."""

    name: str  # its directory inside the study's directory: rooms-6/rnd-seed0, trials/rooms-6/rnd-trial03-seed0
    variant: str
    config: Config
    cli_args: tuple[str, ...]  # options of `byol-explore train`

    def directory(self, study_dir: Path) -> Path:
        return study_dir / self.name

    def log(self, study_dir: Path) -> Path:
        """Return the file for the output of its processes."""
        return study_dir / "logs" / f"{self.name}.log"

    def train_arguments(self, study_dir: Path) -> list[str]:
        """Return the arguments of `byol-explore` that start the run, or continue it if it has begun."""
        directory = self.directory(study_dir)
        resume = ["--resume"] if (directory / "config.json").exists() else []
        return ["train", *self.cli_args, "--run-dir", str(directory), *resume, "--quiet"]


def plan_runs(
    study: Study, *, seeds: int | None = None, only: str = "", chosen: Mapping[str, int] | None = None,
    trials: bool = True,
) -> list[PlannedRun]:  # fmt: skip
    """Plan all runs, every variant of a seed before the next seed; trials of a search before the others.

    Args:
      study: may name code outside this package, which needs consent.
      seeds: number of seeds, 0, 1, ..., that replace the study's. A variant with seeds of its own keeps its first ones.
      only: text that the names of the returned runs contain.
      chosen: with [search], the number of the chosen trial by variant; others have no runs but their trials.
      trials: with [search], plan the trials too.
    Returns:
      The runs. A UserError names the first one whose configuration is wrong.
    """
    if seeds is not None and study.search is not None:
        raise UserError(f"--seeds is {seeds}: {study.source} has [search], which names the seeds")
    if seeds is not None and not 1 <= seeds <= MAX_SEEDS:
        raise UserError(f"--seeds is {seeds}: it must be positive, and at most {MAX_SEEDS:,}")
    if study.search is None:
        runs = _plan(study, seeds)
    else:
        tried = [run for group in plan_trials(study).values() for each in group for run in each] if trials else []
        runs = tried + _plan(_with_choices(study, chosen or {}), None)
    selected = [run for run in runs if only in run.name]
    if not selected:
        later = "; runs with chosen settings follow their trials" if study.search is not None else ""
        raise UserError(
            f"--filter {only!r} matches none of the {len(runs)} runs; a name looks like {runs[0].name}{later}"
        )
    return selected


def plan_trials(study: Study) -> dict[str, list[list[PlannedRun]]]:
    """Plan the runs of a study's search, by variant and number of the trial."""
    search = study.search
    assert search is not None
    tried = replace(study, seeds=search.seeds, tasks=search.tasks or study.tasks)
    planned = {}
    for variant in study.variants:
        trials = [
            replace(variant, name=f"{variant.name}-trial{number:02d}", settings={**variant.settings, **values})
            for number, values in enumerate(search.values_of(variant.name))
        ]
        planned[variant.name] = [_plan(replace(tried, variants=(trial,)), None, f"{TRIALS}/") for trial in trials]
    stop = planned[study.variants[0].name][0][0].config.stop_at_success_rate
    if 0 < stop < search.success_rate:
        raise UserError(
            f"{study.source}: stop_at_success_rate is {stop}, below search.success_rate {search.success_rate}: no run "
            "would be solved"
        )
    return planned


def _with_choices(study: Study, chosen: Mapping[str, int]) -> Study:
    """Return the study of the variants that have a choice, with the chosen settings."""
    variants = []
    for variant in (each for each in study.variants if each.name in chosen):
        assert study.search is not None
        values = study.search.values_of(variant.name)[chosen[variant.name]]
        variants.append(replace(variant, settings={**variant.settings, **values}))
    return replace(study, variants=tuple(variants))


def _plan(study: Study, seeds: int | None, prefix: str = "") -> list[PlannedRun]:
    """Plan the runs of a study without a search; `prefix` begins the names of their directories."""
    require_consent(_external_code(study), study.source)
    if study.preset not in PRESETS:
        raise UserError(f"{study.source}: {unknown_name('preset', study.preset, PRESETS.names())}")
    runs = [
        _plan_run(study, variant, task, seed, prefix)
        for seed in _all_seeds(study, seeds)
        for task in dict.fromkeys(task for variant in study.variants for task in _tasks_of(study, variant))
        for variant in study.variants
        if task in _tasks_of(study, variant) and seed in _seeds_of(study, variant, seeds)
    ]
    _check_names(study, runs)
    return runs


def _tasks_of(study: Study, variant: Variant) -> list[str]:
    """Return the environments of a variant's runs; with `multitask` one run has all of them, joined by commas."""
    tasks = study.tasks if variant.tasks is None else variant.tasks
    multitask = study.multitask if variant.multitask is None else variant.multitask
    return [",".join(tasks)] if multitask else list(tasks)


def _seeds_of(study: Study, variant: Variant, count: int | None) -> Sequence[int]:
    if variant.seeds is not None:
        return variant.seeds[:count]
    return study.seeds if count is None else range(count)


def _all_seeds(study: Study, count: int | None) -> list[int]:
    return list(dict.fromkeys(seed for variant in study.variants for seed in _seeds_of(study, variant, count)))


def _all_tasks(study: Study) -> list[str]:
    return [*study.tasks, *(task for variant in study.variants for task in variant.tasks or ())]


def _external_code(study: Study) -> list[str]:
    """Return everything outside this package that the study's file names."""
    settings = [study.settings, *(variant.settings for variant in study.variants)]
    texts = [value for table in settings for value in table.values() if isinstance(value, str)]
    names = [study.preset, *_all_tasks(study), *(variant.method for variant in study.variants), *texts]
    external = [name for name in dict.fromkeys(names) if is_external(name)]
    for table in settings:
        external += override(Config(), table).env_settings.external(_all_tasks(study))
    return external


def task_dir_name(task: str) -> str:
    """Return the directory for the runs on a task, or on several that are joined by commas."""
    commas = task.count(",")
    return f"{commas + 1}-tasks" if commas else env_dir_name(task)


def command_line(arguments: Sequence[str]) -> str:
    """Return a command to type in a shell."""
    return shlex.join(["byol-explore", *arguments])


def check_environments(study: Study, runs: Sequence[PlannedRun]) -> None:
    """Raise a UserError for an unknown environment, an encoder that does not fit, or a missing extra; imports JAX."""
    import equinox as eqx
    import jax

    from byol_explore.envs.registry import make_envs
    from byol_explore.networks.representation import make_representation
    from byol_explore.training.output import check_extras

    parts = {(run.config.env, run.config.env_settings, run.config.network, run.config.log): run.config for run in runs}
    make = functools.cache(make_envs)
    try:
        for config in parts.values():
            check_extras(config)
            spec = make(tuple(config.env_ids), config.env_settings)[0].spec
            eqx.filter_eval_shape(make_representation, config.network, spec, jax.random.key(0))
    except UserError as error:
        raise UserError(f"{study.source}: {error}") from None


def _plan_run(study: Study, variant: Variant, task: str, seed: int, prefix: str) -> PlannedRun:
    settings = {**study.settings, **variant.settings}
    try:
        steps = variant.steps or study.steps or PRESETS.get(study.preset).config.steps
        given = {"env": task, "seed": seed, "steps": steps}
        if variant.regime is not None:
            given["regime"] = variant.regime
        config = override(make_config(study.preset, variant.ablation, variant.method, **given), settings)
        _check_single_process(config)
        config = validate_config(config)
    except UserError as error:
        raise UserError(f"{study.source}: variant {variant.name!r}: {error}") from None
    ablation = {} if variant.ablation == "none" else {"ablation": variant.ablation}
    chosen = {"preset": study.preset, "method": variant.method, **ablation, **given}
    name = f"{prefix}{task_dir_name(task)}/{variant.name}-seed{seed}"
    return PlannedRun(name, variant.name, config, tuple(to_cli_args({**chosen, **settings})))


def _check_single_process(config: Config) -> None:
    """Raise a UserError for a run of several processes."""
    # A study starts one process for each run, which would wait for the others.
    defaults = to_dict(DistributedConfig())
    for name, value in to_dict(config.distributed).items():
        if value != defaults[name]:
            raise UserError(
                f"distributed.{name} is {value!r}, but every run of a study is one process: leave distributed.* out, "
                "and start runs of several with byol-explore train"
            )


def _check_names(study: Study, runs: Sequence[PlannedRun]) -> None:
    """Raise a UserError for two tasks whose runs would have the same directory."""
    envs: dict[str, str] = {}
    for run in runs:
        if envs.setdefault(run.name, run.config.env) != run.config.env:
            pair = f"{envs[run.name]!r} and {run.config.env!r}"
            raise UserError(
                f"{study.source}: runs on the tasks {pair} would both be kept in {run.name}: make two studies of them"
            )
