from __future__ import annotations

import pytest
from rich.cells import cell_len

from monitor.cli.table import Cells, laid_out

ROUTES = (
    Cells("route", ("chat", "rag")),
    Cells("domain", ("coding", "multilingual")),
    Cells("speedup", ("1.61 (1.55–1.67)", "0.91 (0.85–0.97)"), right=True),
    Cells("TTFT", ("0.98", "0.97"), right=True),
    Cells("total", ("1.48", "0.97"), right=True),
    Cells("break-even", ("1.18", "1.97"), right=True),
    Cells("same output", ("24/24", "9/24"), right=True),
    Cells("twin's own", ("24/24", "23/24"), right=True),
    Cells("measured (UTC)", ("12-02 20:38", "12-02 20:38"), whole=True),
    Cells("basis", ("measured", "modelled")),
)


@pytest.mark.parametrize("width", [32, 60, 80, 100, 113, 10_000])
def test_no_figure_is_cut_and_no_line_is_wider_than_the_terminal(width):
    shown = laid_out(ROUTES, width)
    words = shown.replace("\n", " ").split()
    assert [word for column in ROUTES for text in column.texts for word in text.split() if word not in words] == []
    assert max(cell_len(line.rstrip()) for line in shown.splitlines()) <= width


def test_headings_and_intervals_are_broken_at_their_spaces_before_rows_are_stacked():
    assert [line.rstrip() for line in laid_out(ROUTES, 100).splitlines()] == [
        "                                                                 same  twin's  measured",
        "route  domain                speedup  TTFT  total  break-even  output     own  (UTC)        basis",
        "─" * 100,
        "chat   coding                   1.61  0.98   1.48        1.18   24/24   24/24  12-02 20:38  measured",
        "                         (1.55–1.67)",
        "rag    multilingual             0.91  0.97   0.97        1.97    9/24   23/24  12-02 20:38  modelled",
        "                         (0.85–0.97)",
    ]


def test_a_text_gives_way_before_a_figure_does():
    table = laid_out(
        (
            Cells("run", ("1",), right=True),
            Cells("AL", ("2.50 (2.41–2.59)",), right=True),
            Cells("note", ("the drafter was swapped and an incident was opened",)),
        ),
        45,
    )
    assert [line.rstrip() for line in table.splitlines()] == [
        "run                AL  note",
        "─" * 45,
        "  1  2.50 (2.41–2.59)  the drafter was",
        "                       swapped and an",
        "                       incident was opened",
    ]


def test_where_figures_do_not_fit_side_by_side_each_row_is_a_block():
    assert laid_out((*ROUTES[:3], Cells("basis", ("measured", "as a saved sweep has it"))), 30) == (
        "route    chat\n"
        "domain   coding\n"
        "speedup  1.61 (1.55–1.67)\n"
        "basis    measured\n"
        "\n"
        "route    rag\n"
        "domain   multilingual\n"
        "speedup  0.91 (0.85–0.97)\n"
        "basis    as a saved sweep has\n"
        "         it\n"
    )


GATES = (
    Cells("gate", ("12", "7"), right=True),
    Cells("verdict", ("fail", "pass")),
    Cells("link", ("https://ci.example.com/builds/42", "–"), under=True),
    Cells(
        "why", ("coding: -31.7% after 2 pairs over 36 prompts, -10.0% allowed (and 3 others like it)", ""), under=True
    ),
)


def shown(columns, width):
    return [line.rstrip() for line in laid_out(columns, width).splitlines()]


@pytest.mark.parametrize("width", [100, 10_000])
def test_what_makes_rows_too_long_stands_under_them_also_in_a_pipe(width):
    assert shown(GATES, width) == [
        "gate  verdict  link",
        "─" * 47,
        "  12  fail     https://ci.example.com/builds/42",
        "      why  coding: -31.7% after 2 pairs over 36 prompts, -10.0% allowed (and 3 others like it)",
        "   7  pass     –",
    ]


def test_what_stands_under_a_row_is_named_and_wraps_in_the_terminal():
    assert shown(GATES, 40) == [
        "gate  verdict",
        "─" * 13,
        "  12  fail",
        "      link  https://ci.example.com/builds/42",
        "      why   coding: -31.7% after 2 pairs",
        "            over 36 prompts, -10.0%",
        "            allowed (and 3 others like",
        "            it)",
        "   7  pass",
    ]


def test_rows_that_fit_have_nothing_under_them():
    short = (*GATES[:3], Cells("why", ("it fell", ""), under=True))
    assert shown(short, 10_000)[2:] == [
        "  12  fail     https://ci.example.com/builds/42  it fell",
        "   7  pass     –",
    ]


def test_a_plot_is_never_broken():
    plot = "┊   ─●─   ┊"
    table = laid_out((Cells("conc.", ("16",), right=True), Cells("plot", (plot,), whole=True)), 12)
    assert plot in table


def test_a_cell_that_looks_like_markup_is_shown_as_it_is():
    assert "[red]chat[/red]" in laid_out((Cells("route", ("[red]chat[/red]",)),), 80)
