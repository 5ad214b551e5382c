"""Scales, marks, and drawings as SVG."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from bocl.report.beliefs import calibration, gains, posteriors
from bocl.report.charts import Axis, Bar, Bars, GrowthChart, HeatMap, Plot, Point, Series
from bocl.report.drawing import Box, Circle, Drawing, Line, Shape, Words, mark
from bocl.report.figures import accuracy_against_parameters, accuracy_bars, first_task
from bocl.report.inside import accuracy_matrix, growth, searches
from bocl.report.label_placement import Name, stand_beside
from bocl.report.layout import draw
from bocl.report.scale import Scale, by_errors, fit, say, ticks, whole_ticks, without_the_lowest
from bocl.report.style import HEAT, MARKS, Style, colours, heat
from bocl.report.svg import inline, standalone
from bocl.report.systems import arrange
from report_examples import a_run, a_search, some_diagnostics


def test_a_scale_puts_values_in_their_places():
    even = Scale(0, 10, 100, 200)
    assert [even(value) for value in (0, 5, 10, 99, -9)] == [100, 150, 200, 200, 100]
    factors = Scale(1, 100, 0, 2, "factors")
    assert [factors(value) for value in (1, 10, 100, 0)] == pytest.approx([0, 1, 2, 0])
    errors = Scale(0.0, 0.99, 0, 2, "errors")
    assert [errors(value) for value in (0, 0.9, 0.99, 1.0)] == pytest.approx([0, 1, 2, 2])


@pytest.mark.parametrize(
    ("values", "axis"),
    [
        ([0.5, 0.9], Axis("a", "percent")),
        ([0.9], Axis("a", "percent")),
        ([1.0, 0.2], Axis("a", "percent", "errors")),
        ([331_832], Axis("n", "count")),
        ([7], Axis("n", "count", "factors")),
        ([10, 1e6], Axis("n", "count", "factors")),
        ([], Axis("x")),
        ([0.0], Axis("x")),
        ([-3.0, 2.0], Axis("x")),
        ([math.nan, 1.0], Axis("x")),
    ],
)
def test_every_value_has_room_and_a_few_ticks_around_it(values, axis):
    scale = fit(axis, values, 0, 100)
    places = [scale(value) for value in values if not math.isnan(value)]
    assert all(0 < place < 100 for place in places)
    assert places == sorted(places) or values != sorted(values)
    assert 1 <= len(ticks(scale)) <= 7
    assert all(scale.low <= value <= scale.high for value in ticks(scale))


def test_bars_begin_at_zero():
    assert fit(Axis("x"), [5.0], 0, 100, zero=True).low == 0
    below = fit(Axis("x"), [-5.0], 0, 100, zero=True)
    assert below.high == 0
    assert below(-5.0) > 0


def test_counted_things_have_whole_ticks():
    assert whole_ticks(Scale(0.8, 3.2, 0, 1)) == [1, 2, 3]
    assert whole_ticks(Scale(1.1, 1.9, 0, 1)) == [2]


@pytest.mark.parametrize(
    ("value", "kind", "among", "said"),
    [
        (0.5, "percent", [0.5, 0.75], "50"),
        (0.5, "percent", [0.5, 0.505], "50.0"),
        (20000, "count", [], "20k"),
        (1.5e6, "count", [], "1.5M"),
        (7, "count", [], "7"),
        (-0.0, "plain", [0.0, 0.25], "0"),
        (0.25, "plain", [0.0, 0.25], "0.25"),
    ],
)
def test_ticks_are_as_precise_as_they_must_be(value, kind, among, said):
    assert say(value, kind, among) == said


def test_accuracies_far_apart_are_spaced_by_errors():
    assert by_errors(Axis("a", "percent"), [0.5, 0.95]).spacing == "errors"
    assert by_errors(Axis("a", "percent"), [0.5, 0.6]).spacing == "even"
    assert by_errors(Axis("a", "percent"), []).spacing == "even"


def test_heat_runs_from_light_to_dark_and_is_written_on_in_contrast():
    assert heat(0.0) == (HEAT[0], "#1c2127")
    assert heat(1.0) == (HEAT[-1], "#ffffff")
    assert heat(-1.0) == heat(0.0)
    assert heat(2.0) == heat(1.0)


def test_every_mark_is_a_shape_of_its_own():
    drawn = {repr(mark((0, 0), Style("ink", name))) for name in MARKS}
    assert len(drawn) == len(MARKS)
    assert isinstance(mark((0, 0), Style("ink", "circle", hollow=True)), Circle)


def everything():
    """Return a drawing with every kind of item."""
    items = [
        Line(((0, 0), (5, 5.25)), "ink", dash=(2, 1), note="a line & more"),
        Shape(((0, 0), (1, 0), (1, 1)), "bocl", opacity=0.5),
        Circle((3, 3), 1, "#123456", outline=True),
        Circle((3, 3), 1, "ink", outline=True, empty=True),
        Box(1, 1, 2, 2, "grid", "a box"),
        Words((1, 1), "<b>&\"'", bold=True, anchor="end", upward=True),
        Words((1, 1), "a\x01b\ud800c"),
    ]
    return Drawing(20, 10.5, 'label "quoted"', items)


def test_svg_is_well_formed_and_escapes_what_it_is_given():
    root = ET.fromstring(standalone(everything()))
    assert root.attrib["viewBox"] == "0 0 20 10.5"
    assert root.attrib["aria-label"] == 'label "quoted"'
    texts = [element.text for element in root if element.tag.endswith("text")]
    assert texts == ["<b>&\"'", r"a\x01b\ud800c"]
    titles = [child.text for element in root for child in element]
    assert titles == ["a line & more", "a box"]


def test_colours_follow_the_page_inside_it_and_are_fixed_outside():
    inside, outside = inline(everything()), standalone(everything())
    assert "var(--ink)" in inside
    assert "xmlns" not in inside
    assert "var(" not in outside
    assert colours()["ink"][0] in outside
    assert "#123456" in inside
    assert "#123456" in outside


def test_charts_of_every_kind_stay_on_their_sheet():
    bocl = a_run(loss=0.01, trials=a_search(), attention=0.5, diagnostics=some_diagnostics())
    (stream,) = arrange([bocl, a_run("independent", parameters=10**6)])
    run = stream.systems[0].headline.runs[0]
    charts = [accuracy_bars(stream), accuracy_against_parameters(stream), first_task(stream), growth(run, "x")]
    charts += [accuracy_matrix(run, "x"), *searches(run, "x")]
    charts += [*posteriors(run, "x"), *calibration(run, "x"), *gains(run, "x")]
    for chart in charts:
        drawing = draw(chart, legend=isinstance(chart, Plot))
        for x, y in places(drawing):
            assert -1 <= x <= drawing.width + 1, chart.name
            assert -1 <= y <= drawing.height + 1, chart.name


def said(drawing):
    return [item for item in drawing.items if isinstance(item, Words)]


def test_names_stand_beside_marks_and_cover_nothing():
    marks = [Name(f"name {index}", ((50.0 + index, 50.0),), "ink") for index in range(30)]
    taken = [(x - 4, y - 4, x + 4, y + 4) for name in marks for x, y in name.marks]
    found = stand_beside(marks, taken, (0.0, 0.0, 200.0, 100.0), 10.0)
    assert 3 <= len(found) < 30
    areas = [(w.place[0], w.place[1] - 9, w.place[0] + 6.1 * len(w.text), w.place[1] + 2) for w in found]
    for index, one in enumerate(areas):
        assert one[0] >= 0
        assert one[2] <= 200
        for other in [*areas[:index], *taken]:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            assert apart


def test_a_name_stays_on_the_sheet():
    (left,) = stand_beside([Name("name", ((190.0, 50.0),), "ink")], [], (0.0, 0.0, 200.0, 100.0), 10.0)
    assert left.place[0] + 6.1 * len("name") < 190
    assert stand_beside([Name("name", ((190.0, 50.0),), "ink")], [], (180.0, 0.0, 200.0, 100.0), 10.0) == []


def test_a_name_is_nearer_to_its_own_mark_than_to_another():
    sheet = (0.0, 0.0, 200.0, 100.0)
    other = (70.0, 50.0)  # where the name would end
    (alone,) = stand_beside([Name("name", ((40.0, 50.0),), "ink")], [], sheet, 10.0)
    (beside,) = stand_beside([Name("name", ((40.0, 50.0),), "ink", (other,))], [], sheet, 10.0)
    assert alone.place[0] > 40
    assert beside.place[0] + 6.1 * len("name") < 40


def test_a_name_stands_beside_the_first_of_its_marks_that_has_room():
    sheet, crowd = (0.0, 0.0, 400.0, 100.0), (250.0, 0.0, 400.0, 100.0)
    name = Name("name", ((300.0, 50.0), (200.0, 50.0), (100.0, 50.0)), "ink")
    (at_last,) = stand_beside([name], [], sheet, 10.0)
    (before,) = stand_beside([name], [crowd], sheet, 10.0)
    assert at_last.place[0] > 300
    assert 200 < before.place[0] < 250


def test_the_line_of_a_series_leaves_out_what_is_aside_and_no_name_is_written_over_it():
    front = (Point(1, 0.5), Point(2, 0.1, aside=True), Point(3, 0.5))
    level = Series("level", Style("bocl"), front)
    below = Series("below", Style("rcl"), (Point(2, 0.495),))
    drawing = draw(Plot("p", "p", Axis("x"), Axis("y"), (level, below), named=True))
    (line,) = [item for item in drawing.items if isinstance(item, Line) and item.note == "level"]
    assert len(line.places) == 2
    (name,) = [word for word in said(drawing) if word.text == "below"]
    assert name.place[1] - 9 > line.places[0][1] or name.place[1] + 2 < line.places[0][1]
    sizes = sorted(item.radius for item in drawing.items if isinstance(item, Circle) and item.colour == "bocl")
    assert sizes[0] < sizes[1] == sizes[2]


def test_the_first_series_is_drawn_on_top():
    both = tuple(Series(name, Style(name), (Point(1, 1), Point(2, 1))) for name in ("bocl", "rcl"))
    below = Series("level", Style("muted"), both[0].points, marked=False)
    drawn = draw(Plot("p", "p", Axis("x"), Axis("y"), (*both, below))).items
    lines = [item.colour for item in drawn if isinstance(item, Line) and item.note]
    assert lines == ["muted", "rcl", "bocl"]


def test_every_value_below_the_axis_is_told():
    series = [
        Series(f"system {at}", Style("sn"), (Point(1, 0.1 * at), Point(1, 0.15, aside=True))) for at in range(1, 7)
    ]
    near = Series("bocl", Style("bocl"), (Point(2, 0.9),))
    plot = Plot("p", "p", Axis("x"), Axis("y", "percent"), (*series, near), named=True, y_range=(0.8, 0.9))
    told = " ".join(word.text for word in said(draw(plot)) if word.colour == "muted")
    for at in range(1, 7):
        low, high = sorted((10.0 * at, 15.0))
        assert f"system {at} {low:.1f} to {high:.1f}" in told
    assert "bocl" not in told
    wide = [word for word in said(draw(plot)) if "to" in word.text]
    assert len(wide) > 1
    assert all(word.place[0] + 0.61 * word.size * len(word.text) <= 360 for word in wide)


@pytest.mark.parametrize("rival", [61.5, 90.0])
def test_a_name_does_not_stand_beside_the_mark_of_another_series(rival):
    own = Series("own", Style("bocl"), (Point(50, 1),))
    other = Series("another", Style("rcl"), (Point(0, 1), Point(rival, 1), Point(100, 1)), joined="no")
    drawing = draw(Plot("p", "p", Axis("x"), Axis("y"), (own, other), named=True))
    (mark_of_own,) = [item for item in drawing.items if isinstance(item, Circle) and item.colour == "bocl"]
    (name,) = [word for word in said(drawing) if word.text == "own"]
    assert (name.place[0] > mark_of_own.centre[0]) == (rival == 90.0)


@pytest.mark.parametrize("name", ["gem", "bocl, paper's search, no warm start, one price for all units"])
def test_bars_have_room_however_short_or_long_their_names(name):
    rows = tuple(Bar(name, Style("ink"), value, None, f"{value:.2f} ± 0.10") for value in (1.0, 2.0))
    drawing = draw(Bars("b", "b", Axis("n"), rows))
    one, other = (item for item in drawing.items if isinstance(item, Box))
    assert other.width == pytest.approx(2 * one.width)
    assert other.width > 100
    assert other.x > 30
    assert all(0 <= word.place[0] <= drawing.width for word in said(drawing))


def test_numbers_of_ticks_do_not_run_into_each_other():
    rows = [Bar("a name that takes much room", Style("ink"), value, None, "x" * 16) for value in (1e5, 9e7)]
    drawing = draw(Bars("b", "b", Axis("n", "count", "factors"), tuple(rows), from_zero=False))
    marked = sorted(
        (word.place[0], word.text) for word in said(drawing) if word.anchor == "middle" and word.text[:1].isdigit()
    )
    assert len(marked) >= 2
    for (left, one), (right, other) in pairwise(marked):
        assert right - left >= 6.1 * (len(one) + len(other)) / 2


def test_what_is_far_below_the_rest_is_left_below():
    axis = Axis("a", "percent")
    assert without_the_lowest(axis, [0.2, 0.8, 0.85, 0.9]) == (0.8, 0.9)
    assert without_the_lowest(axis, [0.2, 0.3, 0.8, 0.85, 0.9]) is None
    assert without_the_lowest(axis, [0.6, 0.7, 0.8, 0.9]) is None
    assert without_the_lowest(axis, [0.5]) is None
    assert without_the_lowest(axis, [0.5, 0.5]) is None
    assert without_the_lowest(axis, [0.9, 0.9, 0.9, 0.9, 0.889]) is None
    assert without_the_lowest(axis, [0.2, math.nan, 0.8, 0.85, 0.9]) == (0.8, 0.9)


@pytest.mark.parametrize(("first", "lowest"), [(100, "92"), (30, "0"), (0, "0")])
def test_bars_of_growth_begin_above_zero_where_the_first_would_hide_the_rest(first, lowest):
    chart = GrowthChart("g", "g", Style("bocl"), ("fc1",), ("a", "b"), ((first,), (20,)))
    assert lowest in [word.text for word in said(draw(chart))]


def test_empty_charts_can_be_drawn():
    for chart in (
        Plot("a", "a", Axis("x"), Axis("y"), ()),
        Bars("a", "a", Axis("x"), ()),
        HeatMap("a", "a", "r", "c", Axis("v"), (), (), ()),
        HeatMap("a", "a", "r", "c", Axis("v"), ("1",), ("1",), ((math.nan,),)),
    ):
        assert draw(chart).height > 0


def places(drawing):
    for item in drawing.items:
        match item:
            case Line() | Shape():
                yield from item.places
            case Circle():
                yield item.centre
            case Box():
                yield item.x, item.y
                yield item.x + item.width, item.y + item.height
            case Words():
                yield item.place
