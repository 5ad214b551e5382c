"""What options list, separated by commas."""

from __future__ import annotations

import pytest

from bocl.cli.comma_lists import parse_methods, parse_seeds, parse_words
from bocl.errors import ConfigError


def test_entries_are_read_in_order_without_spaces():
    assert parse_methods("sn, bocl") == ["sn", "bocl"]
    assert parse_methods("all") == "all"
    assert parse_seeds("3,0,9223372036854775807") == [3, 0, 2**63 - 1]
    assert parse_words("--on", "a,b") == ["a", "b"]
    assert parse_methods(None) is parse_seeds(None) is None


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_methods, "all,bocl", "'all' stands alone"),
        (parse_methods, "bocl,ns", "unknown method 'ns'"),
        (parse_methods, "", "empty entry"),
        (parse_methods, "sn,sn", "'sn' is given twice"),
        (parse_seeds, "0,-1", "'-1' is not a whole number"),
        (parse_seeds, "a", "'a' is not a whole number"),
        (parse_seeds, "12345678901234567890", "is not a whole number from 0 to"),
        (parse_seeds, "1,01", "names a seed twice"),
    ],
)
def test_a_list_with_a_mistake_is_refused(parse, text, message):
    with pytest.raises(ConfigError, match=message):
        parse(text)
