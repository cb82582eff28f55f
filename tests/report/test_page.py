"""The page as HTML; test_page_browser.py tests its scripts."""

import json
import re
from typing import Any

from byol_explore.report.model import Picture, Plot, Report, Section, Table, Text
from byol_explore.report.page import render_page
from report.samples import VARIANTS, sample_curve, sample_plot, sample_report


def page_data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_page_is_self_contained() -> None:
    page = render_page(sample_report())
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page)
    assert "connect-src" not in page
    assert not re.search(r"@import|url\((?!#)", page)


def test_text_cannot_become_markup() -> None:
    evil = "</script><script>alert(1)</script>"
    table = Table("t", evil, [evil], [[evil]], evil)
    page = render_page(
        Report(evil, [evil], [Section("s", evil, [Text([evil, f"    {evil}"]), table, sample_plot("p", evil)])])
    )
    assert "<script>alert" not in page
    assert page_data(page)["blocks"]["p"]["title"] == evil


def test_tables_show_few_digits_and_store_all() -> None:
    page = render_page(sample_report())
    assert re.search(r'<td class="number" data-value="0.98765432">0.988</td>', page)
    assert re.search(r'<td class="number" data-value="">\u2013</td>', page)


def test_variants_have_their_colours_in_tables() -> None:
    table = Table("t", "", ["variant", "setting", "rnd"], [["rnd", "rnd", 1]])
    page = render_page(Report("", VARIANTS, [Section("s", "", [table])]))
    assert page[page.index("<main") :].count('class="swatch"') == 2, (
        "the cell under variant, and the column of a variant"
    )


def test_adjacent_listings_are_merged() -> None:
    page = render_page(Report("", [], [Section("s", "", [Text(["First", "    one", "    two", "Then"])])]))
    assert '<p>First</p><pre tabindex="0"><code>one\ntwo</code></pre><p>Then</p>' in page


def test_curves_share_steps_and_need_no_equal_band() -> None:
    alone = sample_curve("none", 0.1)
    alone = alone._replace(low=alone.mean, high=alone.mean)
    plot = Plot("p", "", "x", "y", [sample_curve("rnd", 0.2), alone])
    data = page_data(render_page(Report("", VARIANTS, [Section("s", "", [plot])])))["blocks"]["p"]
    assert len(data["grids"]) == 1
    assert ["low" in curve for curve in data["curves"]] == [True, False]


def test_damaged_picture_has_no_size() -> None:
    broken = Picture("p", "film", "gif", b"not a film")
    data = page_data(render_page(Report("", [], [Section("s", "", [broken])])))
    assert data["blocks"]["p"]["size"] == {}


def test_page_of_200_runs_is_small() -> None:
    """A tenth of seven variants with twenty plots on ten tasks, in a tenth of 15 MB."""
    variants = [f"variant-{i}" for i in range(7)]
    curves = [sample_curve(variant, 0.031 * i, points=200) for i, variant in enumerate(variants, 1)]
    plots = [Plot(f"p{i}", "", "x", "y", curves) for i in range(20)]
    assert len(render_page(Report("", variants, [Section("s", "", [*plots])]))) < 1.5e6
