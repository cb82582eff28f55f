"""Build a report, write it as a page with files, and write tables as text.

- index.html: the page;
- figures/<name>.png and .svg: the figures in the page's colours; .csv: the numbers of curves and bars;
- tables/<name>.csv: all digits; .md and .tex: as the page shows them.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from byol_explore.errors import UserError
from byol_explore.report.curves import curiosity, learning, stages
from byol_explore.report.load import load_runs
from byol_explore.report.maps_and_films import films, maps_section
from byol_explore.report.model import (
    MINUS,
    NO_VALUE,
    Bar,
    Bars,
    Block,
    Cell,
    Curve,
    HeatMap,
    Picture,
    Plot,
    Report,
    Table,
    file_paths,
    full_precision,
    unique_sections,
)
from byol_explore.report.page import GENERATOR, render_page
from byol_explore.report.read_runs import read_study
from byol_explore.report.reproduction import reproduce, search_sections, settings_section
from byol_explore.report.results import headline_section, tasks_section
from byol_explore.report.scores import compute_scores
from byol_explore.utils.files import atomic_directory
from byol_explore.utils.formatting import escape_unprintable, join_list


def build_report(directories: str | Path | Iterable[str | Path], *, main: str = "") -> Report:
    """Build the report of all runs at or below one or several directories; raise UserError if there is none.

    Args:
      directories: run or study directories, or directories above them.
      main: the variant that others are compared with. Default: the first one of the study; else byol-explore; else the
        variant of the method with the most runs.

    Returns:
      The report, for `write_report`. Runs that cannot be read are in `left_out`, with the reasons; damaged
      lines and files of others, which are left out, in `damage`.
    """
    runs = load_runs(directories, main=main)
    scores = compute_scores(runs)
    study = read_study(runs.roots[0])
    sections = [
        headline_section(runs, scores),
        *search_sections(runs),
        learning(runs),
        tasks_section(runs, scores),
        *stages(runs),
        curiosity(runs),
        maps_section(runs, scores),
        films(runs),
        settings_section(runs),
        reproduce(runs),
    ]
    title = study.name if study else join_list(runs.tasks, 3)
    return Report(title, runs.variants, sections, runs.unreadable, runs.damage)


Progress = Callable[[int, int], None]  # blocks written, number of blocks


def check_target(target: Path) -> None:
    """Raise UserError if writing a report to `target` would overwrite anything but an older report."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    page = target / "index.html"
    if page.is_file() and f'content="{GENERATOR}"' in page.read_text(encoding="utf-8", errors="replace")[:2000]:
        return
    raise UserError(f"{escape_unprintable(target)} exists and is no report: choose another --out")


def write_report(
    report: Report, target: Path | str, progress: Progress = lambda done, total: None, *, page_only: bool = False
) -> Path:
    """Write a report to a directory; an error leaves an older report there unchanged.

    Args:
      report: as `build_report` returns it.
      target: a directory that is empty, does not exist or holds an older report.
      progress: called after each block with the number of blocks written, and of all.
      page_only: write index.html without the files of figures and tables.

    Returns:
      The path of index.html.
    """
    target = Path(target)
    check_target(target)
    with atomic_directory(target) as directory:
        directory.mkdir(parents=True)
        (directory / "index.html").write_text(render_page(report, link_files=not page_only), encoding="utf-8")
        if not page_only:
            _write_files(report, directory, progress)
    return target / "index.html"


def _write_files(report: Report, directory: Path, progress: Progress) -> None:
    for folder in ("figures", "tables"):
        (directory / folder).mkdir()
    blocks = [block for section in unique_sections(report) for block in section.blocks]
    for done, block in enumerate(blocks, 1):
        for path, content in zip(file_paths(block), _contents(block, report.variants), strict=True):
            (directory / path).write_bytes(content)
        progress(done, len(blocks))


def _contents(block: Block, variants: list[str]) -> Iterator[bytes]:
    """Yield the contents of `file_paths(block)`."""
    match block:
        case Table():
            for write in (csv_text, markdown_text, latex_text):
                yield write(block).encode()
        case Picture():
            yield block.data
        case Plot() | Bars() | HeatMap():
            from byol_explore.report.figures import draw_figure, figure_bytes  # a page alone needs no matplotlib

            figure = draw_figure(block, variants)
            for kind in ("png", "svg"):
                yield figure_bytes(figure, kind, dpi=150)
            if not isinstance(block, HeatMap):
                yield _numbers(block).encode()


def _numbers(block: Plot | Bars) -> str:
    """Write a row per bar, or per point of a curve."""
    if isinstance(block, Bars):
        return csv_lines([Bar._fields, *block.bars])
    points = [(curve.variant, *point) for curve in block.curves for point in zip(*curve[1:], strict=True)]
    return csv_lines([("curve", *Curve._fields[1:]), *points])


_FORMULA = ("=", "+", "-", "@")  # a spreadsheet takes their full-width forms for them too
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    MINUS: "$-$", NO_VALUE: "--", "∞": r"$\infty$", "±": r"$\pm$", "≥": r"$\geq$", "≤": r"$\leq$",
}  # fmt: skip


def csv_text(table: Table) -> str:
    """Write a table with all digits."""
    return csv_lines([table.columns, *table.rows])


def csv_lines(rows: Iterable[Sequence[Cell]]) -> str:
    """Write numbers with all digits; put an apostrophe before a text that a spreadsheet would run as a formula."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([_csv(cell) for cell in row] for row in rows)
    return file.getvalue()


def markdown_text(table: Table) -> str:
    """Write a table as the page shows it."""
    columns = table.formatted_columns()
    rules = ["---:" if column.numeric else "---" for column in columns]
    lines = [table.columns, rules, *zip(*(column.texts for column in columns), strict=True)]
    body = "\n".join("| " + " | ".join(map(_markdown, line)) + " |" for line in lines)
    return f"{table.title}\n\n{body}\n" + (f"\n{table.note}\n" if table.note else "")


def latex_text(table: Table) -> str:
    """Write a table as the page shows it, for the LaTeX package booktabs."""
    columns = table.formatted_columns()
    alignment = "".join("r" if column.numeric else "l" for column in columns)
    rows = [table.columns, *zip(*(column.texts for column in columns), strict=True)]
    head, *body = (" & ".join(map(_latex, row)) + r" \\" for row in rows)
    caption = _latex(f"{table.title}. {table.note}" if table.note else table.title)
    lines = [
        r"\begin{table}", r"  \centering", rf"  \caption{{{caption}}}", rf"  \begin{{tabular}}{{{alignment}}}",
        r"    \toprule", f"    {head}", r"    \midrule", *(f"    {line}" for line in body), r"    \bottomrule",
        r"  \end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _csv(cell: Cell) -> str:
    text = escape_unprintable(full_precision(cell))
    is_formula = unicodedata.normalize("NFKC", text[:1]).startswith(_FORMULA) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula and isinstance(cell, str) else text


def _markdown(text: str) -> str:
    return re.sub(r"[|<]", r"\\\g<0>", text.replace("\n", " "))


def _latex(text: str) -> str:
    return re.sub(".", lambda match: _LATEX.get(match[0], match[0]), text.replace("\n", " "))
