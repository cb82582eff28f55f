"""Text that people read, against the list of words and openings that this project avoids."""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import byol_explore

ROOT = Path(byol_explore.__file__).parents[2]
PLACES = ("src", "tests", "docs", "examples", "benchmarks", "README.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".md", ".toml", ".html", ".js", ".css"}
SKIPPED = re.compile(
    r"docs/[\w-]+/|tests/test_prose\.py"  # generated report pages and data of runs; the examples of this test
)
WORDS = re.compile(r"\b(nobody|whoever|somebody|everybody|so many|as it is)\b", re.IGNORECASE)
SENTENCE = re.compile(r"(?:^|[.!?:]\s+|\|\s*)(What is|Of)\b")
MAX_TEST_NAME = 72


def files() -> list[Path]:
    """Return the files whose text is read by people."""
    roots = [ROOT / place for place in PLACES]
    paths = [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*")))]
    return [path for path in paths if path.suffix in SUFFIXES and not SKIPPED.match(str(path.relative_to(ROOT)))]


FILES = files()
PYTHON = [path for path in FILES if path.suffix == ".py"]


def one_line(text: str) -> str:
    """Return a text without line breaks and without the signs that begin the lines of comments, lists and headings."""
    return re.sub(r"\s+", " ", re.sub(r"^[ \t]*(?:[#>*-]+[ \t]+)*", "", text, flags=re.MULTILINE)).strip()


def comments(source: str) -> Iterator[str]:
    """Yield comments; those on lines of their own that follow each other are one text."""
    block: list[str] = []
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        row, text = token.start[0], token.string.lstrip("#:! ")
        alone = token.line.strip().startswith("#")
        if block and not (alone and row == last + 1):
            yield " ".join(block)
            block = []
        block.append(text)
        last = row if alone else -1
    if block:
        yield " ".join(block)


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def strings(source: str) -> Iterator[str]:
    """Yield string constants, also the fixed parts of f-strings: messages, field docstrings and docstrings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def paragraphs(path: Path) -> list[str]:
    """Return the texts of a file in which sentences begin: paragraphs, comments and docstrings."""
    text = path.read_text()
    if path.suffix == ".py":
        return [*comments(text), *(paragraph for each in strings(text) for paragraph in each.split("\n\n"))]
    return re.split(r"\n\s*\n|\n(?=\s*(?:[-*#|]|\d+\.) )", text)


def found(check: Callable[[Path], Iterable[str]], paths: list[Path]) -> list[str]:
    """Return what a check finds in files, with the name of the file."""
    return [f"{path.relative_to(ROOT)}: {each[:60]}" for path in paths for each in check(path)]


def avoided_words(path: Path) -> list[str]:
    return [each[0] for each in WORDS.finditer(one_line(path.read_text()))]


def avoided_sentences(path: Path) -> list[str]:
    lines = [one_line(text) for text in paragraphs(path)]
    return [line[each.start() :] for line in lines for each in SENTENCE.finditer(line)]


def avoided_docstrings(path: Path) -> list[str]:
    return [text for text in docstrings(path.read_text()) if re.match(r"(?:What|Who|Those that)\b", text)]


def long_test_names(path: Path) -> list[str]:
    return [each for each in re.findall(r"def (test_\w+)", path.read_text()) if len(each) > MAX_TEST_NAME]


def test_no_avoided_word_is_used() -> None:
    assert not found(avoided_words, FILES)


def test_no_sentence_opens_with_an_avoided_phrase() -> None:
    assert not found(avoided_sentences, FILES)


def test_docstrings_open_with_a_verb_or_an_object() -> None:
    assert not found(avoided_docstrings, PYTHON)


def test_names_of_tests_are_short() -> None:
    assert not found(long_test_names, PYTHON)


@pytest.mark.parametrize("text", ["# as it\n# is", "- for nobody.", "SO MANY of them", "whoever asks"])
def test_avoided_words_are_found_across_lines_and_cases(text: str) -> None:
    assert WORDS.search(one_line(text))


@pytest.mark.parametrize("text", ["Of two.", "Done. What is left.", "| What is it |", "- Of the three"])
def test_avoided_openings_are_found(text: str) -> None:
    assert SENTENCE.search(one_line(text))


def test_comments_on_lines_in_a_row_are_one_text() -> None:
    assert list(comments("# one\n# two\nx = 1  # three\n\n# four\n")) == ["one two", "three", "four"]
