"""A report as files: the page, and every figure and table of it for papers, slides and further work.

- index.html: the page;
- figures/<name>.png and .svg: what the page draws, in its colours; .csv: the numbers of curves and bars;
- tables/<name>.csv: in full; .md and .tex: as people read them.
"""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

from byol_explore.errors import UserError
from byol_explore.report.drawing import draw_figure
from byol_explore.report.model import Bars, Block, HeatMap, Picture, Plot, Report, Table
from byol_explore.report.naming import named_sections
from byol_explore.report.page import GENERATOR, render_page
from byol_explore.report.placing import placed
from byol_explore.report.table_text import csv_lines, csv_text, latex_text, markdown_text
from byol_explore.report.words import printable

Progress = Callable[[int, int], None]  # blocks written, of all


def check_target(target: Path) -> None:
    """A UserError unless the report may be written there: nothing is overwritten but an older report."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    page = target / "index.html"
    if page.is_file() and f'content="{GENERATOR}"' in page.read_text(encoding="utf-8", errors="replace")[:2000]:
        return
    raise UserError(f"{printable(target)} exists and is no report: choose another --out")


def write_report(
    report: Report, target: Path | str, progress: Progress = lambda done, total: None, *, page_only: bool = False
) -> Path:
    """Write everything, or the page by itself, beside the target, then put it in its place; the path of the page."""
    target = Path(target)
    check_target(target)
    with placed(target) as fresh:
        _write_page(report, fresh) if page_only else _write_all(report, fresh, progress)
    return target / "index.html"


def _write_page(report: Report, directory: Path, *, files: bool = False) -> None:
    directory.mkdir(parents=True)
    (directory / "index.html").write_text(render_page(report, files=files), encoding="utf-8")


def _write_all(report: Report, directory: Path, progress: Progress) -> None:
    _write_page(report, directory, files=True)
    for part in ("figures", "tables"):
        (directory / part).mkdir()
    named = [pair for _, blocks in named_sections(report) for pair in blocks]
    for done, (name, block) in enumerate(named, 1):
        for path, data in _files(name, block, report.variants):
            (directory / path).write_bytes(data)
        progress(done, len(named))


def _files(name: str, block: Block, variants: list[str]) -> Iterator[tuple[str, bytes]]:
    match block:
        case Table():
            for kind, write in (("csv", csv_text), ("md", markdown_text), ("tex", latex_text)):
                yield f"tables/{name}.{kind}", write(block).encode()
        case Picture():
            yield f"figures/{name}.{block.kind}", block.data
        case Plot() | Bars() | HeatMap():
            figure = draw_figure(block, variants)
            for kind in ("png", "svg"):
                file = io.BytesIO()
                figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
                yield f"figures/{name}.{kind}", file.getvalue()
            if not isinstance(block, HeatMap):
                yield f"figures/{name}.csv", _numbers(block).encode()


def _numbers(block: Plot | Bars) -> str:
    """What a figure shows: a row per point of a curve, or per bar."""
    if isinstance(block, Bars):
        bars = zip(block.variants, block.values, block.low, block.high, strict=True)
        return csv_lines([("variant", "value", "low", "high"), *bars])
    points = (
        (curve.variant, *point)
        for curve in block.curves
        for point in zip(curve.x, curve.mean, curve.low, curve.high, strict=True)
    )
    return csv_lines([("curve", "x", "mean", "low", "high"), *points])
