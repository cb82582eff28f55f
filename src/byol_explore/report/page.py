"""A report as one HTML page that needs nothing but itself: no server, no fonts or scripts from elsewhere.

Tables and texts are plain HTML; what is drawn comes as data in the page, for the scripts in assets/.
"""

import base64
import io
import json
import re
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any

from PIL import Image

from byol_explore.report.model import Bars, Block, Cell, HeatMap, Picture, Plot, Report, Table, Text
from byol_explore.report.naming import named_sections
from byol_explore.report.numbers import column_decimals, in_full, is_number, rounded, shown
from byol_explore.report.own_files import DAMAGE
from byol_explore.report.palette import RAMP, Stroke, family_stroke, stroke

GENERATOR = "byol-explore report"
_SCRIPTS = ("state.js", "plots.js", "bars.js", "maps.js", "page.js")


def render_page(report: Report, *, version: str = "", files: bool = False) -> str:
    """The whole page; one with a version asks its server for newer ones, one with files links to those beside it."""
    sections = list(named_sections(report))
    blocks = {name: _data(block, report.variants) for _, named in sections for name, block in named}
    data = {
        "variants": {variant: stroke(variant, report.variants)._asdict() for variant in report.variants},
        "ramp": RAMP,
        "blocks": {name: data for name, data in blocks.items() if data is not None},
    }
    parts = {
        "generator": GENERATOR,
        "title": escape(report.title),
        "version": escape(version),
        "connect": "connect-src 'self';" if version else "",
        "style": _asset("page.css"),
        "script": "\n".join(_asset(name) for name in _SCRIPTS),
        "legend": "".join(_chip(variant, report.variants) for variant in report.variants),
        "contents": "".join(
            f'<li><a href="#{name}">{escape(section.title)}</a></li>'
            for (name, _), section in zip(sections, report.sections, strict=True)
        ),
        "sections": "".join(
            _section(name, section.title, named, report, files=files)
            for (name, named), section in zip(sections, report.sections, strict=True)
        ),
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (files("byol_explore.report") / "assets" / name).read_text(encoding="utf-8")


def _section(name: str, title: str, named: list[tuple[str, Block]], report: Report, *, files: bool) -> str:
    """A section's blocks in their order; neighbours of a kind share a grid."""
    inside = ""
    for kind, group in groupby(named, key=lambda pair: _grid_of(pair[1])):
        rendered = "".join(_block(each, block, report, files=files) for each, block in group)
        inside += f'<div class="grid {kind}">{rendered}</div>' if kind else rendered
    heading = f'<h2 id="{name}-title">{escape(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{inside}</section>'


def _grid_of(block: Block) -> str:
    match block:
        case Plot() | Bars():
            return "plots"
        case HeatMap():
            return "maps"
        case Picture():
            return "pictures"
        case _:
            return ""


def _block(name: str, block: Block, report: Report, *, files: bool) -> str:
    match block:
        case Text():
            return "".join(_text(block))
        case Table():
            links = _links(f"tables/{name}", ("csv", "md", "tex")) if files else ""
            return _table(name, block, report.variants, links)
        case _:
            kinds = ("png", "svg", "csv") if isinstance(block, Plot | Bars) else ("png", "svg")
            links = _links(f"figures/{name}", (block.kind,) if isinstance(block, Picture) else kinds) if files else ""
            return (
                f'<figure class="block" id="block-{name}" data-block="{name}">'
                f"<figcaption><h3>{escape(block.title)}</h3>{links}</figcaption>"
                f'<div class="drawing"></div>{_note(block.note if isinstance(block, Plot) else "")}</figure>'
            )


def _links(stem: str, kinds: tuple[str, ...]) -> str:
    links = " ".join(f'<a href="{stem}.{kind}">{kind}</a>' for kind in kinds)
    return f'<span class="files">{links}</span>'


def _text(text: Text) -> Iterator[str]:
    """Paragraphs; neighbouring listings are one."""
    for listed, paragraphs in groupby(text.paragraphs, key=lambda paragraph: paragraph.startswith("    ")):
        if listed:
            lines = "\n".join(line.removeprefix("    ") for each in paragraphs for line in each.splitlines())
            yield f'<pre tabindex="0"><code>{escape(lines)}</code></pre>'
        else:
            yield from (f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)


def _table(name: str, table: Table, variants: list[str], links: str) -> str:
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    decimals = [column_decimals(list(column)) for column in columns]
    numeric = [any(is_number(cell) for cell in column) for column in columns]
    head = "".join(
        f'<th scope="col"{_numeric(of_numbers)}><button type="button">{_named(title, variants)}</button></th>'
        for title, of_numbers in zip(table.columns, numeric, strict=True)
    )
    coloured = [variants if title == "variant" else [] for title in table.columns]
    body = "".join(f"<tr>{''.join(_cells(row, decimals, numeric, coloured))}</tr>" for row in table.rows)
    title = escape(table.title)
    return (
        f'<figure class="block table" id="block-{name}"><figcaption><h3>{title}</h3>{links}</figcaption>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{_note(table.note)}</figure>"
    )


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>' if text else ""


def _cells(row: list[Cell], decimals: list[int], numeric: list[bool], coloured: list[list[str]]) -> Iterator[str]:
    """The first is its row's heading; in columns of variants, names have the colour of their curves beside them."""
    for index, cell in enumerate(row):
        text = _named(shown(cell, decimals[index]), coloured[index])
        tag = '<th scope="row"' if index == 0 else "<td"
        yield f"{tag}{_numeric(numeric[index])}{_sorted_by(cell, decimals[index])}>{text}</{tag[1:3]}>"


def _sorted_by(cell: Cell, decimals: int) -> str:
    """What a column is sorted by, where it is not what the cell shows."""
    value = in_full(cell)
    return "" if value == shown(cell, decimals) else f' data-value="{escape(value)}"'


def _named(text: str, variants: list[str]) -> str:
    return (_swatch(stroke(text, variants)) if text in variants else "") + escape(text)


def _numeric(of_numbers: bool) -> str:
    return ' class="number"' if of_numbers else ""


def _chip(variant: str, variants: list[str]) -> str:
    return (
        f'<button type="button" class="chip" data-variant="{escape(variant)}" aria-pressed="true">'
        f"{_swatch(stroke(variant, variants))}{escape(variant)}</button>"
    )


def _swatch(line: Stroke) -> str:
    dashes = " ".join(map(str, line.dashes)) or "none"
    return (
        f'<svg class="swatch" viewBox="0 0 18 8" aria-hidden="true" style="--c:light-dark({line.light},{line.dark})">'
        f'<line x1="1" x2="17" y1="4" y2="4" stroke-dasharray="{dashes}"/></svg>'
    )


def _data(block: Block, variants: list[str]) -> dict[str, Any] | None:
    """What a script needs to draw a block; None for one that is plain HTML."""
    match block:
        case Plot():
            return _plot_data(block, variants)
        case Bars():
            return {"kind": "bars", "title": block.title, "x_label": block.x_label, "bars": list(_bars_data(block))}
        case HeatMap():
            slices = [{"label": label, "values": _round_all(rows)} for label, rows in block.slices]
            return {
                "kind": "map", "title": block.title, "floor": block.floor, "slices": slices, "unit": block.unit,
                "logarithmic": block.logarithmic,
            }  # fmt: skip
        case Picture():
            source = f"data:image/{block.kind};base64,{base64.b64encode(block.data).decode()}"
            return {"kind": "picture", "title": block.title, "source": source, "size": _size(block)}
        case _:
            return None


def _bars_data(bars: Bars) -> Iterator[dict[str, Any]]:
    decimals = column_decimals(list(bars.values))
    for variant, value, low, high in zip(bars.variants, bars.values, bars.low, bars.high, strict=True):
        numbers = {"value": rounded(value), "low": rounded(low), "high": rounded(high)}
        yield {"variant": variant, "shown": shown(value, decimals), **numbers}


def _size(picture: Picture) -> dict[str, int]:
    """Width and height, so that nothing moves when it is loaded; nothing for a damaged one."""
    try:
        width, height = Image.open(io.BytesIO(picture.data)).size
    except (*DAMAGE, Image.DecompressionBombError):
        return {}
    return {"width": width, "height": height}


def _plot_data(plot: Plot, variants: list[str]) -> dict[str, Any]:
    """Curves that share their x share it here too; those that are no variants bring their colours."""
    others = [curve.variant for curve in plot.curves if curve.variant not in variants]
    grids: list[list[float | int | None]] = []
    curves = []
    for curve in plot.curves:
        x = [rounded(value) for value in curve.x]
        if x not in grids:
            grids.append(x)
        mean, low, high = ([rounded(value) for value in values] for values in (curve.mean, curve.low, curve.high))
        data: dict[str, Any] = {"variant": curve.variant, "grid": grids.index(x), "mean": mean}
        if low != mean or high != mean:
            data |= {"low": low, "high": high}
        if curve.variant in others:
            data["stroke"] = family_stroke(others.index(curve.variant), len(others))._asdict()
        curves.append(data)
    return {
        "kind": "plot", "title": plot.title, "x_label": plot.x_label, "y_label": plot.y_label,
        "range": plot.y_range, "logarithmic": plot.logarithmic, "grids": grids, "curves": curves,
    }  # fmt: skip


def _round_all(rows: list[list[float | None]]) -> list[list[float | int | None]]:
    return [[rounded(value) for value in row] for row in rows]
