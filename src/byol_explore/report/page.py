"""A report as one self-contained HTML page: no server, no fonts or scripts from elsewhere.

Tables and texts are HTML. Figures are data in the page, drawn by the scripts in assets/.
"""

import base64
import io
import json
import re
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import PurePath
from typing import Any

from PIL import Image

from byol_explore.report.model import (
    RAMP,
    Bars,
    Block,
    HeatMap,
    LineStyle,
    Picture,
    Plot,
    Report,
    Section,
    Table,
    Text,
    file_paths,
    format_column,
    full_precision,
    line_style,
    line_styles,
    round_nested,
    unique_sections,
)
from byol_explore.utils.files import DAMAGE_ERRORS

GENERATOR = "byol-explore report"
_SCRIPTS = ("state.js", "plots.js", "bars.js", "maps.js", "page.js")
_GRIDS = {Plot: "plots", Bars: "plots", HeatMap: "maps", Picture: "pictures"}  # CSS classes


def render_page(report: Report, *, version: str = "", link_files: bool = False) -> str:
    """Return the page as HTML.

    Args:
      report: the report.
      version: of a live page, which asks its server for newer ones; empty for a file.
      link_files: link every figure and table to its files in the folders beside the page.
    """
    sections, variants = unique_sections(report), report.variants
    drawn = [block for section in sections for block in section.blocks if not isinstance(block, Text | Table)]
    data = {
        "variants": {variant: line_style(variant, variants)._asdict() for variant in variants},
        "ramp": RAMP,
        "blocks": {block.name: _data(block, variants) for block in drawn},
    }
    parts = {
        "generator": GENERATOR,
        "title": escape(report.title),
        "version": escape(version),
        "connect": "connect-src 'self';" if version else "",
        "style": _asset("page.css"),
        "script": "\n".join(map(_asset, _SCRIPTS)),
        "legend": "".join(_chip(variant, variants) for variant in variants),
        "contents": "".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in sections),
        "sections": "".join(_section(each, variants, link_files=link_files) for each in sections),
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (files("byol_explore.report") / "assets" / name).read_text(encoding="utf-8")


def _section(section: Section, variants: list[str], *, link_files: bool) -> str:
    """Return the blocks in their order; neighbours of a kind share a grid."""
    content = ""
    for grid, group in groupby(section.blocks, key=lambda block: _GRIDS.get(type(block))):
        rendered = "".join(_block(block, variants, link_files=link_files) for block in group)
        content += f'<div class="grid {grid}">{rendered}</div>' if grid else rendered
    name = section.name
    heading = f'<h2 id="{name}-title">{escape(section.title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{content}</section>'


def _block(block: Block, variants: list[str], *, link_files: bool) -> str:
    if isinstance(block, Text):
        return "".join(_text(block))
    name, links, note = block.name, "", ""
    if link_files:
        links = " ".join(f'<a href="{path}">{PurePath(path).suffix[1:]}</a>' for path in file_paths(block))
        links = f'<span class="files">{links}</span>'
    if isinstance(block, Table | Plot) and block.note:
        note = f'<p class="note">{escape(block.note)}</p>'
    is_table = isinstance(block, Table)
    attributes = (
        f'class="block table" id="block-{name}"' if is_table else f'class="block" id="block-{name}" data-block="{name}"'
    )
    content = _table(block, variants) if is_table else '<div class="drawing"></div>'
    return (
        f"<figure {attributes}><figcaption><h3>{escape(block.title)}</h3>{links}</figcaption>{content}{note}</figure>"
    )


def _text(text: Text) -> Iterator[str]:
    """Yield paragraphs; neighbouring listings are one."""
    for is_listing, paragraphs in groupby(text.paragraphs, key=lambda paragraph: paragraph.startswith("    ")):
        if is_listing:
            lines = "\n".join(line.removeprefix("    ") for each in paragraphs for line in each.splitlines())
            yield f'<pre tabindex="0"><code>{escape(lines)}</code></pre>'
        else:
            yield from (f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)


def _table(table: Table, variants: list[str]) -> str:
    """Return a scrollable table; a row begins with its heading."""
    columns = table.formatted_columns()
    classes = [' class="number"' if column.numeric else "" for column in columns]
    head = "".join(
        f'<th scope="col"{css}><button type="button">{_named(column.title, variants)}</button></th>'
        for column, css in zip(columns, classes, strict=True)
    )
    body = ""
    for cells in zip(*(zip(column.cells, column.texts, strict=True) for column in columns), strict=True):
        body += "<tr>"
        for index, (cell, text) in enumerate(cells):
            exact = full_precision(cell)  # sorted by this, if it is not the text
            value = "" if exact == text else f' data-value="{escape(exact)}"'
            shown = _named(text, variants) if columns[index].title == "variant" else escape(text)
            tag, scope = ("td", "") if index else ("th", ' scope="row"')
            body += f"<{tag}{scope}{classes[index]}{value}>{shown}</{tag}>"
        body += "</tr>"
    label = f'tabindex="0" role="region" aria-label="{escape(table.title)}"'
    return f'<div class="scroll" {label}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _named(text: str, variants: list[str]) -> str:
    """Return a text, with the colour of its curves if it is a variant."""
    return (_swatch(line_style(text, variants)) if text in variants else "") + escape(text)


def _chip(variant: str, variants: list[str]) -> str:
    return (
        f'<button type="button" class="chip" data-variant="{escape(variant)}" aria-pressed="true">'
        f"{_named(variant, variants)}</button>"
    )


def _swatch(line: LineStyle) -> str:
    dashes = " ".join(map(str, line.dashes)) or "none"
    return (
        f'<svg class="swatch" viewBox="0 0 18 8" aria-hidden="true" style="--c:light-dark({line.light},{line.dark})">'
        f'<line x1="1" x2="17" y1="4" y2="4" stroke-dasharray="{dashes}"/></svg>'
    )


def _data(block: Plot | Bars | HeatMap | Picture, variants: list[str]) -> dict[str, Any]:
    """Return the data that a script draws a block from."""
    match block:
        case Plot():
            return {"kind": "plot", **block._asdict(), **_curves_data(block, variants)}
        case Bars():
            texts = format_column([bar.value for bar in block.bars])
            bars = [{**bar._asdict(), "shown": text} for bar, text in zip(block.bars, texts, strict=True)]
            return {"kind": "bars", **block._asdict(), "bars": round_nested(bars)}
        case HeatMap():
            return {"kind": "map", **round_nested(block._asdict())}
        case Picture():
            source = f"data:image/{block.kind};base64,{base64.b64encode(block.data).decode()}"
            return {"kind": "picture", "title": block.title, "source": source, "size": _size(block)}


def _curves_data(plot: Plot, variants: list[str]) -> dict[str, Any]:
    """Return the curves and the distinct x that they share; curves that are not variants carry their style."""
    grids: list[list[float]] = []
    curves = []
    for curve, style in zip(plot.curves, line_styles([each.variant for each in plot.curves], variants), strict=True):
        data = round_nested(curve._asdict())
        x = data.pop("x")
        if x not in grids:
            grids.append(x)
        data["grid"] = grids.index(x)
        if data["low"] == data["mean"] == data["high"]:
            del data["low"], data["high"]
        if curve.variant not in variants:
            data["stroke"] = style._asdict()
        curves.append(data)
    return {"grids": grids, "curves": curves}


def _size(picture: Picture) -> dict[str, int]:
    """Return width and height, which reserve the place until the picture is loaded; empty if it is damaged."""
    try:
        width, height = Image.open(io.BytesIO(picture.data)).size
    except (*DAMAGE_ERRORS, Image.DecompressionBombError):
        return {}
    return {"width": width, "height": height}
