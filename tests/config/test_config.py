"""The configuration: to a file and back, and what it refuses."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from builders import small_config
from byol_explore.config.config import Config, from_dict, is_prioritized, to_dict
from byol_explore.config.presets import ABLATIONS, PRESETS, make_config, validate_config
from byol_explore.config.sections import (
    AgentConfig,
    CuriosityConfig,
    DistributedConfig,
    LogConfig,
    NetworkConfig,
    OptimizerConfig,
    RuntimeConfig,
    VMPOConfig,
)
from byol_explore.envs.families import AtariSettings
from byol_explore.errors import UserError
from byol_explore.storage.run_directory import default_run_dir


def changed(**changes: Any) -> Config:
    return dataclasses.replace(Config(), **changes)


def together(env: str = "rooms-6", **settings: Any) -> Config:
    settings = {"coordinator_address": "127.0.0.1:4711", "num_processes": 2, **settings}
    return changed(env=env, distributed=DistributedConfig(**settings))


def game(**settings: Any) -> Config:
    return changed(env="atari:alien", atari=AtariSettings(**settings))


def ray(**settings: Any) -> RuntimeConfig:
    return RuntimeConfig(**{"actor_backend": "ray", "batch_size": 16, **settings})


# To a file and back


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        small_config("rnd", core="lstm", prioritize=True, share_representation=False, embedding_size=7),
        changed(network=NetworkConfig(policy_hidden=()), env="rooms-3,rooms-4", stop_at_success_rate=0.5, seed=9),
        changed(
            env="atari:alien",
            atari=AtariSettings(frame_stack=4, terminal_on_life_loss=True),
            runtime=RuntimeConfig(synchronous=True),
        ),
        *(preset.config for preset in (PRESETS.get(name) for name in PRESETS.names())),
    ],
)
def test_a_config_survives_its_file(config: Config) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


def test_missing_fields_get_their_defaults() -> None:
    config = from_dict({"seed": 4, "network": {"encoder_hidden": [3, 2]}})
    assert config == changed(seed=4, network=NetworkConfig(encoder_hidden=(3, 2)))


@pytest.mark.parametrize(
    ("data", "name", "accepted"),
    [({"sed": 4}, "'sed'", "seed"), ({"agent": {"Gamma": 0.9}}, "'Gamma'", "gamma")],
)
def test_a_field_that_does_not_exist_is_named(data: dict[str, Any], name: str, accepted: str) -> None:
    with pytest.raises(
        UserError, match=f"unknown configuration field {name} .*did you mean {accepted}.*; choose from: .*{accepted}"
    ):
        from_dict(data)


# What follows from it


def test_steps_per_dispatch_and_the_total() -> None:
    config = changed(
        steps=1001, runtime=RuntimeConfig(num_envs=6, batch_size=2, sequence_length=6, rounds_per_dispatch=4)
    )
    assert config.steps_per_round == 30
    assert config.steps_per_dispatch == 120
    assert config.total_steps == 1080
    assert dataclasses.replace(config, steps=1080).total_steps == 1080
    assert dataclasses.replace(config, steps=1).total_steps == 120


@pytest.mark.parametrize(
    ("method", "setting", "expected"),
    [
        ("byol-explore", None, True),
        ("rnd", None, False),
        ("icm", None, False),
        ("rnd", True, True),
        ("byol-explore", False, False),
    ],
)
def test_clipping_is_the_papers_choice_unless_set(method: str, setting: bool | None, expected: bool) -> None:
    config = changed(method=method, curiosity=CuriosityConfig(prioritize=setting))
    assert is_prioritized(config) is expected


@pytest.mark.parametrize(
    ("tasks", "setting", "expected"),
    [(2, None, 0.01), (1, None, 0.0), (2, 0.0, 0.0), (1, 0.1, 0.1)],
)
def test_several_tasks_have_scales_of_their_own(tasks: int, setting: float | None, expected: float) -> None:
    assert changed(agent=AgentConfig(intrinsic_rms_step_size=setting)).intrinsic_rms_step_size(tasks) == expected


def test_spaces_around_tasks_do_not_matter() -> None:
    assert changed(env="rooms-3, rooms-4").env_ids == ["rooms-3", "rooms-4"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "runs/rooms-6/byol-explore-seed0"),
        ({"method": "rnd", "seed": 3}, "runs/rooms-6/rnd-seed3"),
        ({"ablation": "horizon-1"}, "runs/rooms-6/byol-explore-horizon-1-seed0"),
        ({"regime": "intrinsic", "env": "rooms-3,rooms-4"}, "runs/rooms-3+rooms-4/byol-explore-intrinsic-seed0"),
    ],
)
def test_default_run_directories(changes: dict[str, Any], expected: str) -> None:
    assert default_run_dir(changed(**changes)) == Path(expected)


# What it refuses


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (changed(preset="huge"), ["preset 'huge'", "grid"]),
        (changed(method="BYOL"), ["method 'BYOL'", "byol-explore, rnd, icm, none"]),
        (changed(regime="all"), ["regime 'all'", "mixed, intrinsic, extrinsic"]),
        (changed(ablation="no-luck"), ["ablation 'no-luck'", "none, fixed-targets, horizon-1"]),
        (changed(method="none", regime="intrinsic"), ["method 'none'", "regime extrinsic"]),
        (changed(env="rooms-3,rooms-3"), ["'rooms-3,rooms-3'", "twice"]),
        (together(process_id=2), ["distributed.process_id is 2", "0 to 1"]),
        (together(num_processes=1, process_id=1), ["distributed.process_id is 1", "must be 0"]),
        (
            together(coordinator_address=""),
            ["distributed.num_processes is 2", "distributed.coordinator_address", "host:port"],
        ),
        (
            together(num_processes=1),
            ["distributed.coordinator_address is '127.0.0.1:4711'", "distributed.num_processes is 1"],
        ),
        (together(coordinator_address="here"), ["distributed.coordinator_address is 'here'", "host:port"]),
        (together(coordinator_address=":4711"), ["distributed.coordinator_address is ':4711'", "host:port"]),
        (together(coordinator_address="here:70000"), ["distributed.coordinator_address is 'here:70000'", "host:port"]),
        (together(coordinator_address="here:port"), ["distributed.coordinator_address is 'here:port'", "host:port"]),
        (together(num_processes=3), ["3 processes", "batches of 16 sequences", "a multiple of 3"]),
        (together(env="rooms-3,rooms-4", num_processes=16), ["16 processes", "of 2 tasks", "a multiple of 32"]),
        (
            dataclasses.replace(together(), runtime=ray()),
            ["runtime.actor_backend ray", "distributed.num_processes 2", "threads"],
        ),
        (together(heartbeat_timeout=0), ["distributed.heartbeat_timeout is 0", "positive"]),
        (changed(curiosity=CuriosityConfig(horizon=40)), ["curiosity.horizon 40", "sequence_length 33", "1 to 32"]),
        (changed(curiosity=CuriosityConfig(mixing=-0.1)), ["curiosity.mixing is -0.1", "negative"]),
        (changed(curiosity=CuriosityConfig(loss_weight=float("inf"))), ["curiosity.loss_weight is inf", "finite"]),
        (changed(curiosity=CuriosityConfig(normalizer_decay=1.0)), ["curiosity.normalizer_decay is 1.0", "below 1"]),
        (changed(curiosity=CuriosityConfig(embedding_size=0)), ["curiosity.embedding_size is 0", "positive"]),
        (changed(vmpo=VMPOConfig(top_fraction=0.0)), ["vmpo.top_fraction is 0", "above 0 and at most 1"]),
        (changed(vmpo=VMPOConfig(top_fraction=1.1)), ["vmpo.top_fraction is 1.1", "at most 1"]),
        (changed(agent=AgentConfig(gamma=1.0)), ["agent.gamma is 1.0", "below 1"]),
        (changed(vmpo=VMPOConfig(init_temperature=0.0)), ["vmpo.init_temperature is 0.0", "positive"]),
        (changed(optimizer=OptimizerConfig(learning_rate=-1e-3)), ["optimizer.learning_rate is -0.001", "positive"]),
        (changed(optimizer=OptimizerConfig(dual_learning_rate=-1.0)), ["dual_learning_rate is -1.0", "negative"]),
        (changed(optimizer=OptimizerConfig(b2=1.0)), ["optimizer.b2 is 1.0", "below 1"]),
        (changed(optimizer=OptimizerConfig(learning_rate=float("nan"))), ["learning_rate is nan", "finite"]),
        (changed(network=NetworkConfig(value_hidden=(8, 0))), ["network.value_hidden is (8, 0)", "at least 1"]),
        (changed(runtime=RuntimeConfig(sequence_length=1)), ["runtime.sequence_length is 1", "at least 2"]),
        (changed(runtime=RuntimeConfig(num_envs=12, batch_size=8)), ["batch_size 8", "num_envs 12", "4, 6, 12"]),
        (changed(env="rooms-3,rooms-4,rooms-5"), ["3 tasks", "batch of 16", "multiple of 3"]),
        (changed(steps=0), ["steps is 0", "positive"]),
        (changed(seed=-1), ["seed is -1", "negative"]),
        (changed(stop_at_success_rate=1.5), ["stop_at_success_rate is 1.5", "between 0 and 1"]),
        (changed(runtime=RuntimeConfig(num_actors=0)), ["runtime.num_actors is 0", "positive"]),
        (changed(runtime=RuntimeConfig(queue_size=0)), ["runtime.queue_size is 0", "positive"]),
        (changed(runtime=RuntimeConfig(num_actor_devices=-1)), ["runtime.num_actor_devices is -1", "negative"]),
        (changed(runtime=RuntimeConfig(num_envs=48, num_actors=2)), ["actors 2", "48 environments", "multiple of 32"]),
        (changed(runtime=RuntimeConfig(num_envs=32, num_actors=4)), ["actors 4", "batches of 16", "multiple of 64"]),
        (
            changed(runtime=ray(num_envs=48, num_actors=16)),
            ["actors 16", "48 environments", "1, 2, 4, 8 or 16 environments"],
        ),
        (changed(runtime=ray(num_envs=48, num_actors=5)), ["actors 5", "48 environments", "multiple of 80"]),
        (
            changed(runtime=ray(num_envs=16, num_actors=16), env="gymnasium:CartPole-v1,gymnasium:CartPole-v0"),
            ["2 tasks", "the 1 environments of an actor", "random"],
        ),
        (changed(runtime=ray(actor_backend="spark")), ["runtime.actor_backend 'spark'", "threads, ray"]),
        (changed(runtime=ray(inference="remote")), ["runtime.inference 'remote'", "local, central"]),
        (changed(runtime=ray(max_policy_lag=0)), ["runtime.max_policy_lag is 0", "positive"]),
        (changed(runtime=RuntimeConfig(inference="central")), ["inference central needs runtime.actor_backend ray"]),
        (
            changed(runtime=RuntimeConfig(ray_address="10.0.0.1:6379")),
            ["'10.0.0.1:6379' needs runtime.actor_backend ray, not threads"],
        ),
        (changed(log=LogConfig(evaluate_every=-1)), ["log.evaluate_every is -1", "negative"]),
        (changed(log=LogConfig(evaluate_episodes=0)), ["log.evaluate_episodes is 0", "positive"]),
        (game(action_repeat=0), ["atari.action_repeat is 0", "positive"]),
        (game(frame_stack=0), ["atari.frame_stack is 0", "positive"]),
        (game(max_frames=0), ["atari.max_frames is 0", "positive"]),
        (game(max_noops=-1), ["atari.max_noops is -1", "negative"]),
        (game(sticky_action_prob=1.25), ["atari.sticky_action_prob is 1.25", "between 0 and 1"]),
    ],
)
def test_errors_name_wrong_and_accepted_values(config: Config, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        validate_config(config)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        changed(curiosity=CuriosityConfig(horizon=32, target_decay=1.0, mixing=0.0)),
        changed(method="none", regime="extrinsic"),
        changed(agent=AgentConfig(gamma=0.0), vmpo=VMPOConfig(top_fraction=1.0)),
        changed(optimizer=OptimizerConfig(dual_learning_rate=0.0)),
        changed(runtime=RuntimeConfig(num_envs=8, batch_size=8)),
        changed(env="rooms-3,rooms-4"),
        changed(runtime=RuntimeConfig(num_envs=64, batch_size=16, num_actors=4)),
        changed(runtime=ray(num_actors=400, envs_per_actor=1, batch_size=40)),
        changed(runtime=ray(num_actors=4, envs_per_actor=32, batch_size=16)),
        changed(log=LogConfig(evaluate_every=0, evaluate_episodes=1)),
        game(max_noops=0, sticky_action_prob=1.0, action_repeat=1, frame_stack=1, max_frames=1),
    ],
)
def test_values_at_the_edge_are_fine(config: Config) -> None:
    assert validate_config(config) is config


@pytest.mark.parametrize(
    ("runtime", "envs", "of_rollout"),
    [
        ({"num_actors": 4, "num_envs": 64}, 64, 16),
        ({"num_actors": 2, "num_envs": 64}, 64, 32),
        ({"num_actors": 8, "num_envs": 64}, 64, 16),
        ({"num_actors": 400, "envs_per_actor": 1, "batch_size": 40}, 400, 40),
        ({"num_actors": 3, "envs_per_actor": 32}, 96, 32),
    ],
)
def test_actors_have_environments_of_their_own_and_fill_batches_together(
    runtime: dict[str, int], envs: int, of_rollout: int
) -> None:
    settings = ray(**runtime)
    assert (settings.num_envs, settings.envs_per_rollout) == (envs, of_rollout)


# Presets and ablations


@pytest.mark.parametrize("preset", PRESETS.names())
def test_presets_are_valid_and_know_their_name(preset: str) -> None:
    assert validate_config(make_config(preset)).preset == preset


@pytest.mark.parametrize(
    ("ablation", "method", "changes"),
    [
        ("none", "byol-explore", {}),
        ("fixed-targets", "byol-explore", {"target_decay": 1.0}),
        ("horizon-1", "byol-explore", {"horizon": 1}),
        ("no-clipping", "byol-explore", {"prioritize": False}),
        ("no-sharing", "icm", {"share_representation": False}),
        ("prioritized", "rnd", {"prioritize": True}),
    ],
)
def test_an_ablation_changes_one_thing(ablation: str, method: str, changes: dict[str, Any]) -> None:
    plain, ablated = make_config(method=method), make_config(ablation=ablation, method=method)
    curiosity = dataclasses.replace(plain.curiosity, **changes)
    assert ablated == dataclasses.replace(plain, ablation=ablation, curiosity=curiosity)
    assert is_prioritized(validate_config(ablated)) is changes.get("prioritize", method == "byol-explore")


def test_all_ablations_are_tested_here() -> None:
    marks = test_an_ablation_changes_one_thing.pytestmark  # pyright: ignore[reportFunctionMemberAccess]
    assert {case[0] for case in marks[0].args[1]} == set(ABLATIONS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("big",), "unknown preset 'big'; choose from: grid"),
        (("grid", "no-luck"), "unknown ablation 'no-luck'; choose from: none, fixed-targets"),
        (("grid", "none", "vae"), "unknown method 'vae'; choose from: byol-explore, rnd"),
        (
            ("grid", "horizon-1", "icm"),
            r"ablation 'horizon-1' changes nothing in method 'icm' \(preset 'grid', regime "
            r"'mixed'\); choose from: no-sharing, prioritized$",
        ),
        (("grid", "no-clipping", "none"), "ablation 'no-clipping' changes nothing in method 'none' .*; it has no abl"),
    ],
)
def test_make_config_refuses_combinations(arguments: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        make_config(*arguments)


REAL = {
    "byol-explore": {"fixed-targets", "horizon-1", "no-clipping", "no-sharing"},
    "rnd": {"prioritized"},
    "icm": {"no-sharing", "prioritized"},
    "none": set(),
}


@pytest.mark.parametrize("method", REAL)
@pytest.mark.parametrize("ablation", [name for name in ABLATIONS if name != "none"])
def test_an_ablation_that_changes_nothing_is_refused(ablation: str, method: str) -> None:
    """By `make_config`, and by `validate_config` for a configuration made by hand."""
    by_hand = dataclasses.replace(make_config(), method=method, ablation=ablation)
    by_hand = ABLATIONS[ablation].apply(by_hand)
    if ablation in REAL[method]:
        assert validate_config(make_config(ablation=ablation, method=method)) == validate_config(by_hand)
        return
    with pytest.raises(UserError, match=f"ablation '{ablation}' changes nothing in method '{method}'"):
        make_config(ablation=ablation, method=method)
    with pytest.raises(UserError, match=f"ablation '{ablation}' changes nothing in method '{method}'"):
        validate_config(by_hand)


def test_effects_of_an_ablation_depend_on_preset_and_regime() -> None:
    """The large agent already predicts one step ahead; an intrinsic reward that is not used need not be clipped."""
    with pytest.raises(UserError, match=r"'horizon-1' changes nothing in .* \(preset 'atari-big'"):
        make_config("atari-big", "horizon-1")
    assert validate_config(make_config("atari-big", "no-clipping"))
    without = dataclasses.replace(make_config(ablation="no-clipping"), regime="extrinsic")
    with pytest.raises(UserError, match=r"'no-clipping' changes nothing in .* regime 'extrinsic'\); choose"):
        validate_config(without)
