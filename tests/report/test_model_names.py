"""Names of sections and blocks."""

from byol_explore.report.model import Report, Section, Table, Text, unique_sections


def unique_names(*names: str) -> list[str]:
    tables = [Table(name, "", [], []) for name in names]
    [section] = unique_sections(Report("", [], [Section("s", "", tables)]))
    return [block.name for block in section.blocks if isinstance(block, Table)]


def test_names_can_be_parts_of_files_and_links() -> None:
    assert unique_names("atari:montezuma_revenge", "../a b", "é", "<x>") == [
        "atari-montezuma_revenge", "a-b", "unnamed", "x",
    ]  # fmt: skip


def test_names_are_unique_if_case_is_ignored() -> None:
    assert unique_names("a", "A", "a-2", "a") == ["a", "A-2", "a-2-2", "a-3"]


def test_sections_and_blocks_are_named_separately() -> None:
    sections = [Section("a", "", [Table("a", "", [], []), Text([])]), Section("a", "", [Text([])])]
    first, second = unique_sections(Report("", [], sections))
    assert (first, second) == (sections[0], Section("a-2", "", [Text([])]))
