"""A study's own words."""

from pathlib import Path

from byol_explore.report.study_file import StudyFacts, study_facts


def test_a_study_has_a_name_and_a_description(tmp_path: Path) -> None:
    assert study_facts(tmp_path) is None
    (tmp_path / "study.toml").write_text('name = "laptop"\ndescription = "Small."')
    assert study_facts(tmp_path) == StudyFacts("laptop", "Small.")


def test_a_damaged_study_is_called_after_its_directory(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text("name = ")
    assert study_facts(tmp_path) == StudyFacts(tmp_path.name, "")
