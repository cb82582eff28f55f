"""Plots of curiosity."""

from pathlib import Path

from byol_explore.report.curves import curiosity
from byol_explore.report.load import load_runs
from byol_explore.report.model import Plot
from byol_explore.report.read_runs import MAX_ENV_GROUPS
from report.synthetic import blocks, make_rows, words, write_run

NUMBERS = {
    "uncertainty": 2.0,
    "intrinsic_reward": 0.5,
    "intrinsic_nonzero_fraction": 0.25,
    "active_update_fraction": 0.5,
}


def plots(*directories: Path) -> dict[str, Plot]:
    return {plot.name: plot for plot in blocks(curiosity(load_runs(directories)), Plot)}


def test_curiosity_metrics_are_plotted_for_curious_variants(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        "byol-explore-seed0",
        make_rows([0, 1], **NUMBERS, prediction_error=[1, 2], target_relative_distance=0.1),
    )
    write_run(tmp_path, "rnd-seed0", make_rows([0, 1], **NUMBERS, prediction_error=[7]), method="rnd")
    certain = {**NUMBERS, "uncertainty": 0.0}
    write_run(tmp_path, "none-seed0", make_rows([0, 1], **certain, prediction_error=[0]), method="none")
    found = plots(tmp_path)
    assert set(found) == {
        "uncertainty", "intrinsic-reward", "intrinsic-nonzero-fraction", "active-update-fraction",
        "target-relative-distance", "horizon",
    }  # fmt: skip
    assert [curve.variant for curve in found["uncertainty"].curves] == ["byol-explore", "rnd"]
    assert found["uncertainty"].curves[0].mean == [2.0, 2.0]
    assert found["uncertainty"].logarithmic
    assert [curve.variant for curve in found["horizon"].curves] == ["byol-explore"]


def test_errors_by_horizon_are_averaged_over_seeds_that_have_them(tmp_path: Path) -> None:
    rows = make_rows([0, 1], uncertainty=1.0)
    rows[0]["prediction_error"], rows[1]["prediction_error"] = [9.0, 9.0], [1.0, 2.0]
    write_run(tmp_path, "byol-explore-seed0", rows)
    write_run(tmp_path, "byol-explore-seed1", make_rows([0], uncertainty=1.0, prediction_error=[3.0, 4.0, 5.0]))
    [curve] = plots(tmp_path)["horizon"].curves
    assert (curve.x, curve.mean) == ([1.0, 2.0, 3.0], [2.0, 3.0, 5.0])
    assert (curve.low, curve.high) == ([1.0, 2.0, 5.0], [3.0, 4.0, 5.0])


def test_first_envs_have_curiosity_plots(tmp_path: Path) -> None:
    for size in range(3, 4 + MAX_ENV_GROUPS):
        write_run(
            tmp_path, f"{size}/byol-explore-seed0", make_rows([0.0], uncertainty=float(size)), env=f"rooms-{size}"
        )
    assert list(plots(tmp_path)) == [f"uncertainty-rooms-{size}" for size in range(3, 3 + MAX_ENV_GROUPS)]
    assert f"Not shown, to keep this short: rooms-{3 + MAX_ENV_GROUPS}." in words(curiosity(load_runs([tmp_path])))


def test_section_without_curiosity_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, "none-seed0", make_rows([0.0], uncertainty=0.0), method="none")
    section = curiosity(load_runs([tmp_path]))
    assert len(section.blocks) == 1
    assert "No variant has logged a curiosity" in words(section)
