"""Names of blocks."""

from byol_explore.report.model import Report, Section, Table, Text
from byol_explore.report.naming import named_sections


def names_of(*names: str) -> list[str]:
    tables = [Table(name, "", [], []) for name in names]
    [(_, named)] = named_sections(Report("", [], [Section("s", "", [*tables])]))
    return [name for name, _ in named]


def test_names_can_be_files_and_links() -> None:
    assert names_of("atari:montezuma_revenge", "../a b", "é", "<x>") == [
        "atari-montezuma_revenge",
        "a-b",
        "unnamed",
        "x",
    ]


def test_no_name_is_given_twice_even_where_case_does_not_count() -> None:
    assert names_of("a", "A", "a-2", "a") == ["a", "A-2", "a-2-2", "a-3"]


def test_sections_are_named_apart_from_blocks() -> None:
    sections = [Section("a", "", [Table("a", "", [], []), Text([])]), Section("a", "", [Text([])])]
    named = [(section, [name for name, _ in blocks]) for section, blocks in named_sections(Report("", [], sections))]
    assert named == [("a", ["a", "text"]), ("a-2", ["text-2"])]
