"""Scales, marks, and drawings as SVG."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from bocl.report.beliefs import calibration, gains, posteriors
from bocl.report.charts import Axis, Bar, Bars, GrowthChart, HeatMap, Plot, Point, Series
from bocl.report.drawing import Drawing
from bocl.report.figures import accuracy_against_parameters, accuracy_bars, first_task
from bocl.report.inside import accuracy_matrix, growth, searches
from bocl.report.label_placement import Name, free_places
from bocl.report.layout import draw
from bocl.report.scale import Scale, by_errors, fit, say, ticks, whole_ticks, without_the_lowest
from bocl.report.style import HEAT, MARKS, Style, colours, heat
from bocl.report.systems import arrange
from report_examples import a_run, a_search, some_diagnostics
from svg_reader import painted, places, read_svg, titled


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
    ("value", "axis", "among", "text"),
    [
        (0.5, Axis("a", "percent"), [0.5, 0.75], "50"),
        (0.5, Axis("a", "percent"), [0.5, 0.505], "50.0"),
        (0.5, Axis("a", "percent", "errors"), [0.5, 0.995], "50"),
        (20000, Axis("a", "count"), [], "20k"),
        (1.5e6, Axis("a", "count"), [], "1.5M"),
        (7, Axis("a", "count"), [], "7"),
        (-0.0, Axis("a"), [0.0, 0.25], "0"),
        (0.25, Axis("a"), [0.0, 0.25], "0.25"),
    ],
)
def test_ticks_are_as_precise_as_they_must_be(value, axis, among, text):
    assert say(value, axis, among) == text


def test_accuracies_far_apart_are_spaced_by_errors():
    assert by_errors(Axis("a", "percent"), [0.5, 0.95]).spacing == "errors"
    assert by_errors(Axis("a", "percent"), [0.5, 0.6]).spacing == "even"
    assert by_errors(Axis("a", "percent"), []).spacing == "even"


def test_heat_runs_from_light_to_dark_and_is_written_on_in_contrast():
    assert heat(0.0) == (HEAT[0], "#1c2127")
    assert heat(1.0) == (HEAT[-1], "#ffffff")
    assert heat(-1.0) == heat(0.0)
    assert heat(2.0) == heat(1.0)


def drawn_mark(name, *, hollow=False):
    drawing = Drawing(9, 9, "mark")
    drawing.mark((0, 0), Style("ink", name, hollow=hollow), 4)
    return drawing.inline()


def test_every_mark_is_a_shape_of_its_own():
    assert len({drawn_mark(name) for name in MARKS}) == len(MARKS)
    assert '<circle cx="0" cy="0" r="4" fill="var(--ink)"/>' in drawn_mark("circle")
    assert 'r="4" fill="var(--paper)" stroke="var(--ink)"' in drawn_mark("circle", hollow=True)


def everything():
    """Return a drawing with every kind of element."""
    drawing = Drawing(20, 10.5, 'label "quoted"')
    drawing.line(((0, 0), (5, 5.25)), "ink", 1, dash=(2, 1), note="a line & more")
    drawing.shape(((0, 0), (1, 0), (1, 1)), "bocl", opacity="0.5")
    drawing.circle((3, 3), 1, "#123456", inside="paper")
    drawing.circle((3, 3), 1, "ink", inside="none")
    drawing.box((1, 1), 2, 2, "grid", "a box")
    drawing.title((1, 1), "<b>&\"'", 11)
    drawing.words((1, 1), "a\x01b\ud800c", 11)
    return drawing


def test_svg_is_well_formed_and_escapes_what_it_is_given():
    root = ET.fromstring(everything().standalone())
    assert root.attrib["viewBox"] == "0 0 20 10.5"
    assert root.attrib["aria-label"] == 'label "quoted"'
    texts = [element.text for element in root if element.tag.endswith("text")]
    assert texts == ["<b>&\"'", r"a\x01b\ud800c"]
    titles = [child.text for element in root for child in element]
    assert titles == ["a line & more", "a box"]


def test_colours_follow_the_page_inside_it_and_are_fixed_outside():
    inside, outside = everything().inline(), everything().standalone()
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
        for element in read_svg(drawing):
            for x, y in places(element):
                assert -1 <= x <= drawing.width + 1, chart.name
                assert -1 <= y <= drawing.height + 1, chart.name


def test_names_stand_next_to_marks_and_cover_nothing():
    names = [Name(f"name {index}", [(50.0 + index, 50.0)]) for index in range(30)]
    taken = [(x - 4, y - 4, x + 4, y + 4) for name in names for x, y in name.marks]
    found = zip(names, free_places(names, taken, (0.0, 0.0, 200.0, 100.0), 10.0), strict=True)
    placed = [(name, *place) for name, place in found if place is not None]
    assert 3 <= len(placed) < 30
    areas = [(x, y - 9, x + 6.1 * len(name.text), y + 2) for name, x, y in placed]
    for index, one in enumerate(areas):
        assert one[0] >= 0
        assert one[2] <= 200
        for other in [*areas[:index], *taken]:
            apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            assert apart


def test_a_name_stays_on_the_sheet():
    name = Name("name", [(190.0, 50.0)])
    ((left, _),) = free_places([name], [], (0.0, 0.0, 200.0, 100.0), 10.0)
    assert left + 6.1 * len("name") < 190
    assert free_places([name], [], (180.0, 0.0, 200.0, 100.0), 10.0) == [None]


def test_a_name_is_nearer_to_its_own_mark_than_to_another():
    sheet = (0.0, 0.0, 200.0, 100.0)
    other = (70.0, 50.0)  # where the name would end
    ((free, _),) = free_places([Name("name", [(40.0, 50.0)])], [], sheet, 10.0)
    ((crowded, _),) = free_places([Name("name", [(40.0, 50.0)], [other])], [], sheet, 10.0)
    assert free > 40
    assert crowded + 6.1 * len("name") < 40


def test_a_name_stands_next_to_the_first_of_its_marks_that_has_room():
    sheet, crowd = (0.0, 0.0, 400.0, 100.0), (250.0, 0.0, 400.0, 100.0)
    name = Name("name", [(300.0, 50.0), (200.0, 50.0), (100.0, 50.0)])
    ((at_last, _),) = free_places([name], [], sheet, 10.0)
    ((before, _),) = free_places([name], [crowd], sheet, 10.0)
    assert at_last > 300
    assert 200 < before < 250


def test_the_line_of_a_series_leaves_out_what_is_aside_and_no_name_is_written_over_it():
    front = (Point(1, 0.5), Point(2, 0.1, aside=True), Point(3, 0.5))
    level = Series("level", Style("bocl"), front)
    below = Series("below", Style("rcl"), (Point(2, 0.495),))
    root = read_svg(draw(Plot("p", "p", Axis("x"), Axis("y"), (level, below), named=True)))
    (line,) = titled(root, "level")
    assert len(places(line)) == 2
    height, (name,) = places(line)[0][1], [float(word.get("y")) for word in root.iter("text") if word.text == "below"]
    assert name - 9 > height or name + 2 < height
    sizes = sorted(float(circle.get("r")) for circle in painted(root, "circle", "bocl"))
    assert sizes[0] < sizes[1] == sizes[2]


def test_the_first_series_is_drawn_on_top():
    both = tuple(Series(name, Style(name), (Point(1, 1), Point(2, 1))) for name in ("bocl", "rcl"))
    below = Series("level", Style("muted"), both[0].points, marked=False)
    root = read_svg(draw(Plot("p", "p", Axis("x"), Axis("y"), (*both, below))))
    assert [path.findtext("title") for path in root.iter("path") if len(path)] == ["level", "rcl", "bocl"]


def test_every_value_below_the_axis_is_told():
    series = [
        Series(f"system {at}", Style("sn"), (Point(1, 0.1 * at), Point(1, 0.15, aside=True))) for at in range(1, 7)
    ]
    near = Series("bocl", Style("bocl"), (Point(2, 0.9),))
    plot = Plot("p", "p", Axis("x"), Axis("y", "percent"), (*series, near), named=True, y_range=(0.8, 0.9))
    root = read_svg(draw(plot))
    told = " ".join(word.text for word in painted(root, "text", "muted"))
    for at in range(1, 7):
        low, high = sorted((10.0 * at, 15.0))
        assert f"system {at} {low:.1f} to {high:.1f}" in told
    assert "bocl" not in told
    wide = [word for word in root.iter("text") if "to" in word.text]
    assert len(wide) > 1
    for word in wide:
        assert float(word.get("x")) + 0.61 * float(word.get("font-size")) * len(word.text) <= 360


@pytest.mark.parametrize("rival", [61.5, 90.0])
def test_a_name_does_not_stand_next_to_the_mark_of_another_series(rival):
    own = Series("own", Style("bocl"), (Point(50, 1),))
    other = Series("another", Style("rcl"), (Point(0, 1), Point(rival, 1), Point(100, 1)), joined="no")
    root = read_svg(draw(Plot("p", "p", Axis("x"), Axis("y"), (own, other), named=True)))
    (mark,) = painted(root, "circle", "bocl")
    (name,) = [word for word in root.iter("text") if word.text == "own"]
    assert (float(name.get("x")) > float(mark.get("cx"))) == (rival == 90.0)


@pytest.mark.parametrize("name", ["gem", "bocl, paper's search, no warm start, one price for all units"])
def test_bars_have_room_however_short_or_long_their_names(name):
    rows = tuple(Bar(name, Style("ink"), value, None, f"{value:.2f} ± 0.10") for value in (1.0, 2.0))
    drawing = draw(Bars("b", "b", Axis("n"), rows))
    root = read_svg(drawing)
    one, other = (float(box.get("width")) for box in root.iter("rect"))
    assert other == pytest.approx(2 * one, abs=0.2)
    assert other > 100
    assert all(float(box.get("x")) > 30 for box in root.iter("rect"))
    assert all(0 <= float(word.get("x")) <= drawing.width for word in root.iter("text"))


def test_numbers_of_ticks_do_not_run_into_each_other():
    rows = [Bar("a name that takes much room", Style("ink"), value, None, "x" * 16) for value in (1e5, 9e7)]
    root = read_svg(draw(Bars("b", "b", Axis("n", "count", "factors"), tuple(rows), from_zero=False)))
    marked = sorted((float(word.get("x")), word.text) for word in root.iter("text") if word.text[:1].isdigit())
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
    assert lowest in [word.text for word in read_svg(draw(chart)).iter("text")]


def test_empty_charts_can_be_drawn():
    for chart in (
        Plot("a", "a", Axis("x"), Axis("y"), ()),
        Bars("a", "a", Axis("x"), ()),
        HeatMap("a", "a", "r", "c", Axis("v"), (), (), ()),
        HeatMap("a", "a", "r", "c", Axis("v"), ("1",), ("1",), ((math.nan,),)),
    ):
        assert draw(chart).height > 0
