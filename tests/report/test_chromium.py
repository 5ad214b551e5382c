"""The page in a real browser: it renders, without a complaint, in narrow and wide windows, in light and dark."""

from __future__ import annotations

import pytest

from bocl.report.page import page
from bocl.report.sections import compare
from chromium import check_rendering, look, needs_chromium
from report_examples import a_run, an_evaluation


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
def test_it_renders_in_narrow_and_wide_windows(tmp_path, dark):
    runs = [run for run in an_evaluation(seeds=1) if run.config["stream"]["name"] == "split-cifar100"]
    odd = a_run(name="a-name-without-a-break" * 9, folder="runs/" + "x" * 300, stream="other")
    keys = ("comparison", "bars", "size", "first-task", "trials", "inside", "runs")
    check_rendering(page(compare([*runs, odd])), tmp_path, keys, dark=dark)


@needs_chromium
def test_a_page_that_is_too_wide_or_complains_would_be_found(tmp_path):
    wide = "<body><section id=x></section><main><svg width=900 height=9><text>a</text></svg></main>"
    assert look(wide, tmp_path, 400)[0]["beyond"] > 400
    with pytest.raises(AssertionError, match="wrong"):
        look(wide + "<script>console.error('wrong')</script>", tmp_path, 400)


@needs_chromium
@pytest.mark.parametrize(
    "planted",
    ["<script>document.title = 1</script>", "<img src='data:,x'>", "<p style='color:red'>", "<iframe src='data:,x'>"],
)
def test_what_is_planted_in_it_is_refused(tmp_path, planted):
    text = page(compare([a_run()]))
    look(text, tmp_path, 400)
    with pytest.raises(AssertionError, match="Content Security Policy"):
        look(text.replace("<main>", f"<main>{planted}"), tmp_path, 400)
