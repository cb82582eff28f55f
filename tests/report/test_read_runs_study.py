"""Reading study.toml."""

from pathlib import Path

from byol_explore.report.read_runs import StudyFacts, read_study


def test_study_has_name_description_and_variants(tmp_path: Path) -> None:
    assert read_study(tmp_path) is None
    (tmp_path / "study.toml").write_text(
        'name = "laptop"\ndescription = "Small."\nmethods = ["rnd"]\n[[variants]]\nname = "mine"\n'
    )
    assert read_study(tmp_path) == StudyFacts("laptop", "Small.", ["rnd", "mine"])


def test_damaged_study_is_named_after_its_directory(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text("name = ")
    assert read_study(tmp_path) == StudyFacts(tmp_path.name, "", [])
