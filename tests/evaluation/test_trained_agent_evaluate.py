"""`evaluate`: intervals by hand, policies of known success, films, and checkpoints by name."""

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from imageio_ffmpeg import get_ffmpeg_exe
from PIL import Image

from builders import leaves_with_names
from byol_explore.config.config import Config
from byol_explore.config.presets import make_config
from byol_explore.envs.families import AtariSettings
from byol_explore.envs.registry import make_env
from byol_explore.errors import UserError
from byol_explore.evaluation import films, trained_agent
from byol_explore.evaluation.films import save_film
from byol_explore.evaluation.rollouts import EpisodeResults, record_frames
from byol_explore.evaluation.rollouts import run_episodes as play_episodes
from byol_explore.evaluation.scores import mean_interval, rate_interval
from byol_explore.evaluation.trained_agent import evaluate
from byol_explore.networks.representation import Actor
from byol_explore.storage.checkpoint import Checkpoints, Restored
from byol_explore.storage.run_directory import write_config
from byol_explore.types import UNKNOWN_SUCCESS
from hosts import Scripted, indifferent
from runs import damage, largest_file, quickly, shared_runtime, tiny

# Intervals


@pytest.mark.parametrize(
    ("successes", "episodes", "low", "high"),
    [
        (5, 10, 0.236593, 0.763407),
        (0, 10, 0.0, 0.277533),  # z^2 / (n + z^2)
        (10, 10, 0.722467, 1.0),
        (1, 1, 0.206549, 1.0),  # 1 / (1 + z^2)
        (190, 200, 0.910422, 0.972617),
    ],
)
def test_wilsons_interval_by_hand(successes: int, episodes: int, low: float, high: float) -> None:
    interval = rate_interval(np.arange(episodes) < successes)
    assert interval.mean == pytest.approx(successes / episodes)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
    # Wilson's interval ends at true rates from which the observed rate is z standard errors away.
    for end in (interval.low, interval.high):
        if 1e-9 < end < 1 - 1e-9:
            error = np.sqrt(end * (1 - end) / episodes)
            assert abs(interval.mean - end) / error == pytest.approx(1.959964, rel=1e-5)


def test_bootstrap_by_hand() -> None:
    """Resamples of two values have the means 0, 1/2 and 1 with probabilities 1/4, 1/2 and 1/4."""
    assert mean_interval(np.asarray([0.0, 1.0])) == (0.5, 0.0, 1.0)
    assert mean_interval(np.full(7, 3.5)) == (3.5, 3.5, 3.5)
    assert mean_interval(np.asarray([2.0])) == (2.0, 2.0, 2.0)


def test_bootstrap_of_many_values_is_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(size=400)
    interval = mean_interval(values)
    spread = 1.96 * values.std() / 20
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - spread, abs=0.1 * spread)
    assert interval.high == pytest.approx(values.mean() + spread, abs=0.1 * spread)
    assert mean_interval(values) == interval, "the same numbers every time"


# Episodes


def actor_with_logits(env: str, *logits: float) -> Actor:
    return indifferent(make_env(env), *logits)


def play(env: str, actor: Actor, *, greedy: bool, episodes: int) -> EpisodeResults:
    with quickly():
        return play_episodes(actor, make_env(env), episodes, jax.random.key(0), greedy=greedy)


def test_greedy_takes_the_likelier_action_and_sampling_takes_both() -> None:
    """Action 1 of the two-armed probe pays 1; the policy takes it with probability 3/4."""
    actor = actor_with_logits("probe:two-armed", 0.0, float(np.log(3.0)))
    greedy, sampled = (play("probe:two-armed", actor, greedy=each, episodes=400) for each in (True, False))
    assert np.all(greedy.episode_return == 1.0)
    assert np.mean(sampled.episode_return) == pytest.approx(0.75, abs=0.07)
    assert set(sampled.episode_return) == {0.0, 1.0}
    assert np.all(sampled.length == 1)


def test_episodes_count_once_and_to_their_end() -> None:
    """To the right the corridor ends after 29 of 60 steps; to the left it never ends."""
    right = play("probe:corridor", actor_with_logits("probe:corridor", 0.0, 9.0, 0.0), greedy=True, episodes=3)
    left = play("probe:corridor", actor_with_logits("probe:corridor", 9.0, 0.0, 0.0), greedy=True, episodes=3)
    np.testing.assert_array_equal(right.episode_return, [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(right.length, [29, 29, 29])
    np.testing.assert_array_equal(left.episode_return, [0.0, 0.0, 0.0])
    np.testing.assert_array_equal(left.length, [60, 60, 60])


def test_film_shows_complete_episodes(tmp_path: Path) -> None:
    """An episode of 29 steps has 30 frames, with the agent one cell further in each."""
    with quickly():
        frames = record_frames(
            actor_with_logits("probe:corridor", 0.0, 50.0, 0.0), make_env("probe:corridor"), jax.random.key(0), 2
        )
    assert len(frames) == 60
    agents = [int(np.argmax(frame[8, 8::16].min(axis=-1))) for frame in frames]
    assert agents == 2 * list(range(30))
    save_film(tmp_path / "new" / "film.gif", frames, milliseconds=50)
    with Image.open(tmp_path / "new" / "film.gif") as picture:
        assert picture.format == "GIF"
        assert picture.size == (frames[0].shape[1], frames[0].shape[0])
        assert getattr(picture, "n_frames", 1) == 60
        assert picture.info["duration"] == 50
        assert picture.info["loop"] == 0


def test_films_of_several_tasks_have_one_size(tmp_path: Path) -> None:
    frames = [np.full((8, 20, 3), 255, np.uint8), np.full((16, 10, 3), 255, np.uint8)]
    save_film(tmp_path / "film.gif", frames)
    with Image.open(tmp_path / "film.gif") as picture:
        assert picture.size == (20, 16)
        picture.seek(1)
        bright = np.asarray(picture.convert("L")) > 128
    np.testing.assert_array_equal(bright, np.broadcast_to(np.arange(20) < 10, (16, 20)))


def test_film_keeps_the_colours_of_small_objects(tmp_path: Path) -> None:
    """Among a hundred shades of the background."""
    frame = np.repeat(np.random.default_rng(0).integers(60, 200, (64, 64, 1)), 3, axis=2).astype(np.uint8)
    frame[10:13, 10:13], frame[20:24, 20:24] = (120, 255, 40), (50, 220, 235)
    save_film(tmp_path / "film.gif", [frame])
    with Image.open(tmp_path / "film.gif") as film:
        seen = np.asarray(film.convert("RGB"), int)
    np.testing.assert_allclose(seen[[11, 21], [11, 21]], frame[[11, 21], [11, 21]], atol=10)


@pytest.mark.parametrize(("name", "start"), [("film.webp", b"RIFF"), ("film.MP4", b"ftyp"), ("film.gif", b"GIF8")])
def test_film_has_the_format_of_its_suffix(tmp_path: Path, name: str, start: bytes) -> None:
    save_film(tmp_path / name, [np.full((9, 15, 3), value, np.uint8) for value in (0, 120, 240)])
    assert start in (tmp_path / name).read_bytes()[:8]


def test_mp4_has_all_frames_at_their_time(tmp_path: Path) -> None:
    save_film(tmp_path / "film.mp4", [np.full((31, 33, 3), value, np.uint8) for value in (0, 100, 200)], 100)
    command = [get_ffmpeg_exe(), "-i", str(tmp_path / "film.mp4"), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    shown = subprocess.run(command, capture_output=True, check=True)
    assert b"34x32" in shown.stderr
    assert b"10 fps" in shown.stderr
    frames = np.frombuffer(shown.stdout, np.uint8).reshape(3, 32, 34, 3)
    np.testing.assert_allclose(frames[:, :28, :28].mean((1, 2, 3)), [0, 100, 200], atol=4)


def test_failed_mp4_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "film.mp4").symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"film\.mp4 could not be written: .") as caught:
        save_film(tmp_path / "film.mp4", [np.zeros((32, 32, 3), np.uint8)])
    assert "\n" not in str(caught.value)


def test_hanging_ffmpeg_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = tmp_path / "ffmpeg"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(hanging))
    monkeypatch.setattr(films, "_FFMPEG_SECONDS", -0.8)
    with pytest.raises(UserError, match=r"film\.mp4 could not be written: ffmpeg did not end within"):
        save_film(tmp_path / "film.mp4", [np.zeros((32, 32, 3), np.uint8)])


@pytest.mark.parametrize("name", ["film.avi", "film", ".gif", "film.mp4.txt"])
def test_unknown_film_format_is_found_before_any_episode(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"{name} has no suffix of a film: choose from \.gif, \.webp, \.mp4$"):
        evaluate(tmp_path / "no run", video=tmp_path / name)


def test_missing_extra_for_mp4_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    message = r"^a film called film\.mp4 needs imageio-ffmpeg: pip install 'byol-explore\[train\]'$"
    with pytest.raises(UserError, match=message):
        evaluate(tmp_path / "no run", video=tmp_path / "film.mp4")
    (tmp_path / "directory.gif").mkdir()
    with pytest.raises(UserError, match=r"directory\.gif is a directory"):
        evaluate(tmp_path / "no run", video=tmp_path / "directory.gif")


# Checkpoints by name

SEEDS = {10: 1, 20: 2, 30: 3}  # of the state in the checkpoint of each step; the first scores best


@pytest.fixture(scope="module")
def config() -> Config:
    return tiny(devices=2)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, config: Config) -> Path:
    """A run with three checkpoints."""
    directory = tmp_path_factory.mktemp("evaluation") / "run"
    write_config(directory, config)
    for step, seed in SEEDS.items():
        state = shared_runtime(config).first(seed)
        Checkpoints(directory / "checkpoints").save(step, state, {}, score=1.0 / step)
    return directory


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Actor, int, bool, Any, Any]]:
    """Record calls of `run_episodes` and fake results: of four episodes three succeed if greedy, one if sampled."""
    calls = []

    def fake(
        actor: Actor, env: Any, episodes: int, key: Any, *, task: int | None, greedy: bool, progress: Any
    ) -> EpisodeResults:  # fmt: skip
        assert task is None, "these environments have one task each"
        calls.append((actor, episodes, greedy, jax.random.key_data(key).tolist(), env))
        wins = 3 if greedy else 1
        returns = np.where(np.arange(4) < wins, 1.0, -1.0)
        return EpisodeResults(returns, np.asarray([6, 6, 3, 3]), np.full(4, UNKNOWN_SUCCESS))

    monkeypatch.setattr(trained_agent, "run_episodes", fake)
    return calls


@pytest.mark.parametrize(("checkpoint", "step"), [("last", 30), ("best", 10), ("20", 20)])
def test_checkpoints_are_chosen_by_name(
    directory: Path, config: Config, played: list[Any], monkeypatch: pytest.MonkeyPatch, checkpoint: str, step: int
) -> None:
    """A run trained on two devices is evaluated on one."""
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:1])
    report = evaluate(directory, checkpoint=checkpoint)
    assert report["checkpoint_steps"] == step
    expected = leaves_with_names(shared_runtime(config).first(SEEDS[step]).learner.target_actor)
    for actor, *_ in played:
        actual = leaves_with_names(actor)
        assert actual.keys() == expected.keys()
        for name, array in actual.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_report_has_both_acting_modes_with_intervals(directory: Path, played: list[Any]) -> None:
    report = evaluate(directory, episodes=4, seed=5)
    assert (report["run"], report["episodes"], report["skipped_checkpoints"]) == (str(directory), 4, [])
    assert "protocol" not in report
    result = report["tasks"]["probe:memory"]
    assert list(result) == ["sampled", "greedy"], "the mode of training comes first"
    assert result["greedy"]["success_rate"] == rate_interval(np.arange(4) < 3)._asdict()
    assert result["sampled"]["success_rate"] == rate_interval(np.arange(4) < 1)._asdict()
    assert result["greedy"]["return"]["mean"] == 0.5
    assert result["greedy"]["return"]["low"] < 0.5 < result["greedy"]["return"]["high"]
    assert result["greedy"]["length_mean"] == 4.5
    assert [(episodes, greedy) for _, episodes, greedy, *_ in played] == [(4, False), (4, True)]
    evaluate(directory, episodes=4, seed=6)
    assert played[0][3] != played[2][3], "another seed, other episodes"


def test_default_episodes_are_200_inside_jit_and_10_outside(
    directory: Path, played: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evaluate(directory)["episodes"] == 200
    monkeypatch.setattr(trained_agent, "make_envs", lambda names, settings: [Scripted()])
    monkeypatch.setattr(trained_agent, "restore_actor", lambda *_: Restored(None, {"step": 10}, []))
    assert evaluate(directory)["episodes"] == 10
    assert [episodes for _, episodes, *_ in played] == [200, 200, 10, 10]


def test_human_scores_and_progress_are_reported(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host environments with an agent that always takes action 1, in episodes of 1, 2, 3 and 1 steps."""
    env, reported = Scripted(scores=(1.0, 2.0)), []
    actor = indifferent(env, 0.0, 50.0)
    monkeypatch.setattr(trained_agent, "make_envs", lambda names, settings: [env])
    monkeypatch.setattr(trained_agent, "restore_actor", lambda *_: Restored(actor, {"step": 10}, []))
    report = evaluate(directory, episodes=4, progress=lambda what, count: reported.append((what, count)))
    for mode in ("greedy", "sampled"):
        result = report["tasks"]["probe:memory"][mode]
        assert (result["return"]["mean"], result["length_mean"]) == (1.75, 1.75)
        assert result["human_normalized"] == pytest.approx(75.0)
        assert [count for what, count in reported if what == f"probe:memory, {mode}"] == [2, 3, 4]


@pytest.mark.parametrize(
    ("own", "protocol", "expected"),
    [
        ("paper", None, (30, 0.0, 108_000)),
        ("paper", "training", (7, 0.25, 400)),
        ("training", None, (7, 0.25, 400)),
        ("training", "paper", (30, 0.0, 108_000)),
    ],
)
def test_games_follow_the_protocol_of_the_run_or_the_given_one(
    tmp_path: Path, played: list[Any], monkeypatch: pytest.MonkeyPatch, own: str, protocol: str | None, expected: Any
) -> None:
    atari = AtariSettings(
        max_noops=7, sticky_action_prob=0.25, max_frames=400, terminal_on_life_loss=True, evaluation_protocol=own
    )
    write_config(tmp_path, dataclasses.replace(make_config("atari-small"), atari=atari))
    monkeypatch.setattr(trained_agent, "restore_actor", lambda *_: Restored(None, {"step": 10}, []))
    report = evaluate(tmp_path, protocol=protocol)
    assert tuple(report["protocol"].values()) == expected
    games = [env.settings for *_, env in played]
    assert {
        (settings.max_noops, settings.sticky_action_prob, settings.max_frames, settings.terminal_on_life_loss)
        for settings in games
    } == {(*expected, False)}


def test_unknown_protocols_are_user_errors(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="protocol 'paper': probe:memory has no protocols to choose from"):
        evaluate(directory, protocol="paper")
    write_config(tmp_path, make_config("atari-small"))
    with pytest.raises(UserError, match="unknown protocol 'mine'; choose from: paper, training"):
        evaluate(tmp_path, protocol="mine")


def test_damaged_checkpoint_is_skipped_and_reported(tmp_path: Path, directory: Path, played: list[Any]) -> None:
    directory = shutil.copytree(directory, tmp_path / "run")
    damage(largest_file(directory / "checkpoints" / "step_000000000030" / "state"))
    report = evaluate(directory)
    assert report["checkpoint_steps"] == 20
    assert report["skipped_checkpoints"][0].startswith("step_000000000030 (")
    assert len(played) == 2
    with pytest.raises(UserError, match=r"no whole checkpoint .*step_000000000030"):
        evaluate(directory, checkpoint="30")


@pytest.mark.parametrize("checkpoint", ["11", "newest", "-10", ""])
def test_unknown_checkpoint_error_lists_the_known_ones(directory: Path, checkpoint: str) -> None:
    with pytest.raises(
        UserError,
        match=rf"unknown checkpoint '{checkpoint}'( \(did you mean \w+\?\))?; choose from: last, best, 10, 20, 30",
    ):
        evaluate(directory, checkpoint=checkpoint)


def test_missing_run_or_checkpoint_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run"):
        evaluate(tmp_path)
    write_config(tmp_path, tiny("none"))
    with pytest.raises(UserError, match="no whole checkpoint"):
        evaluate(tmp_path)
    with pytest.raises(UserError, match="episodes is -1: it must be at least 1"):
        evaluate(tmp_path, episodes=-1)
