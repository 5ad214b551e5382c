"""A sample of ``make corruption``, in a process of its own, because it replaces parts of the command line."""

from __future__ import annotations

from test_kills import tortured


def test_damaged_runs_answer_the_same_or_refuse():
    done = tortured("corruption.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("60 damages of ")
    assert "\n0 wrong" in done.stdout
