"""Settings: every mistake told at once and in plain words, overrides, files, round trips."""

from __future__ import annotations

import copy
import hashlib
import inspect
import math
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import bocl.errors
from bocl.checks import Natural, OneOrEach, Positive, PositiveInt, checked, section
from bocl.errors import ConfigError, InputError
from bocl.experiment.config import load_config
from bocl.settings import apply_overrides, digest, parse, read_toml, to_plain


@dataclass(frozen=True)
class Search:
    kind: Literal["bayesian", "random"] = "bayesian"
    budget: int | None = None
    limit: int | Literal["auto"] = "auto"


@dataclass(frozen=True)
class Training:
    epochs: int
    rate: float = 0.1
    shuffle: bool = True
    widths: tuple[int, ...] = (3, 4)
    pair: tuple[int, int] = (1, 2)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs is {self.epochs}; it must be at least 1")


@dataclass(frozen=True)
class Stage:
    name: str
    share: Annotated[float, Field(gt=0, le=1)] = 1.0


@dataclass(frozen=True)
class Config:
    training: Training
    name: str = "run"
    search: Search = field(default_factory=Search)
    stages: tuple[Stage, ...] = ()
    extra: Stage | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.name == "forbidden":
            raise ConfigError("name 'forbidden' is taken;\nchoose another")


SMALL = {"training": {"epochs": 2}}


def with_training(**settings: object) -> dict[str, object]:
    return {"training": {"epochs": 2, **settings}}


def message(data: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(Config, data, "my.toml")
    return str(caught.value)


class TestParse:
    def test_defaults_fill_what_is_not_given(self):
        assert parse(Config, SMALL, "my.toml") == Config(training=Training(epochs=2))

    def test_everything_given(self):
        data = {
            "training": {"epochs": 3, "rate": 1, "shuffle": False, "widths": [5, 6, 7], "pair": [8, 9]},
            "name": "é",
            "search": {"kind": "random", "budget": 10, "limit": 4},
            "stages": [{"name": "a"}, {"name": "b", "share": 0.5}],
            "extra": {"name": "c"},
            "arguments": {"hidden": [312, 128], "deep": {"er": "x"}},
            "folder": "runs/mine",
        }
        assert parse(Config, data, "my.toml") == Config(
            training=Training(3, 1.0, False, (5, 6, 7), (8, 9)),
            name="é",
            search=Search("random", 10, 4),
            stages=(Stage("a"), Stage("b", 0.5)),
            extra=Stage("c"),
            arguments={"hidden": [312, 128], "deep": {"er": "x"}},
            folder=Path("runs/mine"),
        )

    def test_an_integer_is_a_number_and_becomes_a_float(self):
        rate = parse(Config, with_training(rate=1), "my.toml").training.rate
        assert (rate, type(rate)) == (1.0, float)

    def test_lists_become_tuples(self):
        assert parse(Config, with_training(widths=[]), "my.toml").training.widths == ()

    @pytest.mark.parametrize(
        ("data", "line"),
        [
            # the wrong type, without coercion
            (with_training(epochs="3"), 'training.epochs: expected an integer, found the string "3"'),
            (with_training(epochs=True), "training.epochs: expected an integer, found true"),
            (with_training(epochs=2.5), "training.epochs: expected an integer, found 2.5"),
            (with_training(epochs=2.0), "training.epochs: expected an integer, found 2.0"),
            (with_training(rate="0.1"), 'training.rate: expected a finite number, found the string "0.1"'),
            (with_training(rate=True), "training.rate: expected a finite number, found true"),
            (with_training(rate=math.nan), "training.rate: expected a finite number, found NaN"),
            (with_training(shuffle=1), "training.shuffle: expected true or false, found 1"),
            (
                with_training(shuffle="True"),
                'training.shuffle: expected true or false, found the string "True"',
            ),
            (with_training(widths=3), "training.widths: expected a list, found 3"),
            (with_training(widths=[1, "2"]), 'training.widths[1]: expected an integer, found the string "2"'),
            (with_training(pair=[1]), "training.pair: expected one more entry, found the list [1]"),
            (
                with_training(pair=[1, 2, 3]),
                "training.pair: expected at most 2 entries, found the list [1, 2, 3]",
            ),
            ({**SMALL, "name": 3}, "name: expected a string, found 3"),
            ({**SMALL, "name": {"a": 1}}, "name: expected a string, found a table with a"),
            (
                {**SMALL, "name": date(2024, 1, 2)},
                "name: dates and times are not used here, found the date or time 2024-01-02; quote it",
            ),
            ({**SMALL, "search": "random"}, 'search: expected a table, found the string "random"'),
            (
                {**SMALL, "search": {"budget": "x"}},
                'search.budget: expected an integer, found the string "x"',
            ),
            ({**SMALL, "extra": 3}, "extra: expected a table, found 3"),
            ({**SMALL, "stages": {}}, "stages: expected a list, found an empty table"),
            ({**SMALL, "stages": [{"name": "a"}, {}]}, "stages[1].name: required key is missing"),
            ({**SMALL, "stages": [{"name": "a"}, 3]}, "stages[1]: expected a table, found 3"),
            ({**SMALL, "arguments": []}, "arguments: expected a table, found the list []"),
            (
                {**SMALL, "extra": {"name": "c", "share": 0.0}},
                "extra.share is 0.0; it must be above 0",
            ),
            # a value outside a Literal
            (
                {**SMALL, "search": {"kind": "randm"}},
                "search.kind: unknown value 'randm' (did you mean 'random'?)",
            ),
            (
                {**SMALL, "search": {"kind": "zzz"}},
                "search.kind: unknown value 'zzz' (known: bayesian, random)",
            ),
            ({**SMALL, "search": {"kind": 3}}, "search.kind: expected 'bayesian' or 'random', found 3"),
            (
                {**SMALL, "search": {"limit": 1.5}},
                "search.limit: expected an integer or 'auto', found 1.5",
            ),
            # keys
            ({**SMALL, "serach": {}}, "serach: unknown key (did you mean 'search'?)"),
            (with_training(epoch=3), "training.epoch: unknown key (did you mean 'epochs'?)"),
            ({**SMALL, "extra": {"name": "c", "q": 1}}, "extra.q: unknown key (known: name, share)"),
            ({"training": {}}, "training.epochs: required key is missing"),
            ({}, "training: required key is missing"),
            # a dataclass's own checks
            (with_training(epochs=0), "training: epochs is 0; it must be at least 1"),
            ({**SMALL, "name": "forbidden"}, "name 'forbidden' is taken; choose another"),
        ],
    )
    def test_one_problem_is_one_line(self, data, line):
        assert message(data) == f"my.toml: {line}"

    def test_all_problems_at_once(self):
        data = {
            "nmae": "x",
            "training": {"epochs": 0},
            "search": {"kind": "randm", "budget": 1.5},
            "stages": [{"name": 1}, {"share": 2}],
        }
        assert message(data).split("\n") == [
            "7 problems in my.toml:",
            "  nmae: unknown key (did you mean 'name'?)",
            "  training: epochs is 0; it must be at least 1",
            "  search.kind: unknown value 'randm' (did you mean 'random'?)",
            "  search.budget: expected an integer, found 1.5",
            "  stages[0].name: expected a string, found 1",
            "  stages[1].name: required key is missing",
            "  stages[1].share is 2; it must be at most 1",
        ]

    def test_every_wrong_entry_of_a_list_is_named(self):
        assert message(with_training(widths=["a", 1, "b"])).split("\n") == [
            "2 problems in my.toml:",
            '  training.widths[0]: expected an integer, found the string "a"',
            '  training.widths[2]: expected an integer, found the string "b"',
        ]

    @pytest.mark.parametrize("rate", [10**400, -(10**400)])
    def test_an_integer_too_large_for_a_float_is_refused(self, rate):
        assert "training.rate: expected a finite number" in message(with_training(rate=rate))

    def test_places_inside_a_table_of_values_are_named(self):
        with pytest.raises(ConfigError, match=r"^my\.toml: counts\.b: expected an integer, found 1\.5$"):
            parse(Loose, {"counts": {"a": 1, "b": 1.5}}, "my.toml")

    def test_members_of_a_union_that_expect_the_same_are_named_once(self):
        with pytest.raises(ConfigError, match=r"^my\.toml: either: expected a list, found 3$"):
            parse(Loose, {"either": 3}, "my.toml")

    def test_long_values_are_shortened(self):
        assert len(message(with_training(epochs="x" * 1000))) < 160

    def test_text_that_is_not_unicode_is_refused(self):
        assert "name: expected valid Unicode text" in message({**SMALL, "name": "\udcff"})

    def test_a_fault_in_a_check_is_not_taken_for_the_users(self):
        with pytest.raises(ZeroDivisionError):
            parse(Faulty, {}, "my.toml")

    def test_a_table_of_tables_has_places_too(self):
        assert parse(Named, {"tables": {"a": {"name": "x"}}}, "my.toml") == Named({"a": Stage("x")})
        with pytest.raises(ConfigError, match=r"^my\.toml: tables\.a\.nam: unknown key \(did you mean 'name'\?\)$"):
            parse(Named, {"tables": {"a": {"name": "x", "nam": "y"}}}, "my.toml")


@dataclass(frozen=True)
class Loose:
    counts: dict[str, int] = field(default_factory=dict)
    either: tuple[int, ...] | tuple[str, ...] = ()


@dataclass(frozen=True)
class Faulty:
    def __post_init__(self) -> None:
        raise ZeroDivisionError


@dataclass(frozen=True)
class Named:
    tables: dict[str, Stage]


@section("bake")
@dataclass(frozen=True)
class Bake:
    kind: Literal["bread", "cake"] = "bread"
    minutes: PositiveInt = 30
    heat: Annotated[Positive, Field(le=300)] = 180.0
    layers: OneOrEach[Natural] = 1
    fan: bool = False

    def __post_init__(self) -> None:
        if self.fan and self.heat > 250:
            raise ConfigError(f"bake.heat is {self.heat:g}, too hot for a fan")


class TestSection:
    """Settings made in Python are checked as those of a file are."""

    def test_it_is_a_frozen_value(self):
        bake = Bake("cake", 40, layers=[1, 2])
        assert bake == Bake(kind="cake", minutes=40, layers=(1, 2))
        assert replace(bake, minutes=41).layers == (1, 2)
        assert asdict(bake) == {"kind": "cake", "minutes": 40, "heat": 180.0, "layers": (1, 2), "fan": False}
        assert (pickle.loads(pickle.dumps(bake)), hash(bake)) == (bake, hash(Bake("cake", 40, layers=(1, 2))))
        assert (Bake.minutes, list(inspect.signature(Bake).parameters)[:2]) == (30, ["kind", "minutes"])
        with pytest.raises(FrozenInstanceError):
            bake.minutes = 3

    def test_numbers_become_those_of_python(self):
        bake = Bake("cake", np.int32(4), np.float64(99), [np.int64(2)])
        assert [type(value) for value in (bake.minutes, bake.heat, *bake.layers)] == [int, float, int]
        assert type(Bake(heat=99).heat) is float

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Bake("pie"), "bake.kind is 'pie'; it must be 'bread' or 'cake'"),
            (lambda: Bake(minutes=0), "bake.minutes is 0; it must be at least 1"),
            (lambda: Bake(minutes=True), "bake.minutes is True; it must be an integer"),
            (lambda: Bake(minutes=3.0), "bake.minutes is 3.0; it must be an integer"),
            (lambda: Bake(heat="hot"), "bake.heat is 'hot'; it must be a finite number"),
            (lambda: Bake(heat=math.nan), "bake.heat is nan; it must be a finite number"),
            (lambda: Bake(heat=301), "bake.heat is 301; it must be at most 300"),
            (lambda: Bake(layers=[1, -2]), "bake.layers[1] is -2; it must be at least 0"),
            (lambda: Bake(layers=()), "bake.layers is (); it must be an integer or a list with 1 or more entries"),
            (lambda: Bake(fan=1), "bake.fan is 1; it must be true or false"),
            (lambda: Bake(minuts=3), "bake.minuts: unknown key (did you mean 'minutes'?)"),
            (lambda: Bake(fan=True, heat=260), "bake.heat is 260, too hot for a fan"),
            (lambda: replace(Bake(), minutes=-1), "bake.minutes is -1; it must be at least 1"),
            (
                lambda: Bake("pie", 0, fan=2),
                "bake.kind is 'pie'; it must be 'bread' or 'cake'; bake.minutes is 0; it must be at least 1; "
                "bake.fan is 2; it must be true or false",
            ),
            (lambda: Bake("cake", 1, 1, 1, True, 6), "bake: Unexpected positional argument"),
            (lambda: Bake("cake", kind="cake"), "bake.kind: Got multiple values for argument"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_section(self, make, message):
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value) == message

    def test_a_file_says_the_same_of_ranges(self):
        with pytest.raises(ConfigError, match=r"^my\.toml: bake\.minutes is 0; it must be at least 1$"):
            parse(Kitchen, {"bake": {"minutes": 0}}, "my.toml")
        assert parse(Kitchen, {"bake": {"layers": [1, 2], "heat": 99}}, "my.toml") == Kitchen(
            Bake(layers=(1, 2), heat=99)
        )

    def test_an_argument_is_checked_alike(self):
        assert checked("seed", np.int64(3), Natural) == 3
        assert checked("bake", Bake(), Bake) == Bake()
        with pytest.raises(ConfigError, match=r"^seed is -1; it must be at least 0$"):
            checked("seed", -1, Natural)
        with pytest.raises(ConfigError, match=r"^bake is None; it must be a Bake, such as Bake\(\)$"):
            checked("bake", None, Bake)


@dataclass(frozen=True)
class Kitchen:
    bake: Bake


class TestOverrides:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("3", 3),
            ("-2.5e-3", -2.5e-3),
            ("true", True),
            ("[1, 2]", [1, 2]),
            ('"3"', "3"),
            ("'a b'", "a b"),
            ("{x = 1}", {"x": 1}),
            ("random", "random"),
            ("True", "True"),
            ("package.module:function", "package.module:function"),
            ("x=y", "x=y"),
            ("a b", "a b"),
            ("", ""),
            (" 3 ", 3),
            ("2024-01-02", "2024-01-02"),
            ("07:32:00", "07:32:00"),
            ("1\nother = 2", "1\nother = 2"),
            ("[1, 2", "[1, 2"),
        ],
    )
    def test_values(self, text, value):
        result = apply_overrides({}, [f"a.b={text}"])
        assert result == {"a": {"b": value}}
        assert type(result["a"]["b"]) is type(value)

    def test_tables_are_made_and_neighbours_kept(self):
        data = {"a": {"b": 1, "c": 2}, "d": 3}
        assert apply_overrides(data, ["a.b=9", "e.f.g=x", "e.f.h=y"]) == {
            "a": {"b": 9, "c": 2},
            "d": 3,
            "e": {"f": {"g": "x", "h": "y"}},
        }

    def test_later_overrides_win(self):
        assert apply_overrides({}, ["a=1", "a=2"]) == {"a": 2}

    def test_a_table_can_be_replaced_by_a_value(self):
        assert apply_overrides({"a": {"b": 1}}, ["a=3"]) == {"a": 3}

    def test_the_input_is_left_alone(self):
        data = {"a": {"b": [1, {"c": 2}]}}
        before = copy.deepcopy(data)
        result = apply_overrides(data, ["a.x=1", "z.y=2"])
        result["a"]["b"][1]["c"] = 99
        assert data == before

    @pytest.mark.parametrize("wrong", ["a.b", "", "=3", "a..b=3", ".a=3", "a.=3"])
    def test_another_form_is_refused(self, wrong):
        with pytest.raises(ConfigError, match=r"a\.b=value"):
            apply_overrides({}, [wrong])

    def test_a_path_through_a_value_is_refused(self):
        with pytest.raises(ConfigError, match=r"^--set a\.b\.c=1: a\.b is 3, not a table"):
            apply_overrides({"a": {"b": 3}}, ["a.b.c=1"])
        with pytest.raises(ConfigError, match=r"a is the list \[1\], not a table"):
            apply_overrides({"a": [1]}, ["a.b=1"])


class TestFiles:
    def test_a_file_is_read(self, tmp_path):
        path = tmp_path / "a.toml"
        path.write_text('name = "é"\n[training]\nepochs = 2\n', encoding="utf-8")
        assert read_toml(path) == {"name": "é", "training": {"epochs": 2}}
        assert read_toml(str(path)) == read_toml(path)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"a = 1\nb = = 2\n", "not valid TOML: .*line 2"),
            (b"a = 1\na = 2\n", "not valid TOML"),
            (b"a = 1\nb = 2\nc = '\xff'\n", "line 3 is not UTF-8"),
        ],
    )
    def test_bad_content(self, tmp_path, content, words):
        path = tmp_path / "a.toml"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=words) as caught:
            read_toml(path)
        assert str(caught.value).startswith(str(path))

    def test_a_byte_order_mark_is_no_content(self, tmp_path):
        (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfa = 1\n")
        assert read_toml(tmp_path / "a.toml") == {"a": 1}

    def test_nothing_there(self, tmp_path):
        with pytest.raises(ConfigError, match=r"gone\.toml: there is no such file"):
            read_toml(tmp_path / "gone.toml")
        with pytest.raises(ConfigError, match="this is a folder"):
            read_toml(tmp_path)

    def test_pipes_and_devices_are_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.toml")
        for place in (tmp_path / "pipe.toml", "/dev/zero"):
            with pytest.raises(ConfigError, match=r"(pipe\.toml|/dev/zero): this is a pipe or a device; give a file"):
                read_toml(place)

    def test_a_huge_file_is_not_read(self, tmp_path):
        with (tmp_path / "huge.toml").open("wb") as file:
            file.truncate(1 << 40)  # a hole, which takes no room on the disk
        with pytest.raises(ConfigError, match=r"huge\.toml: it has more than 65,536 bytes"):
            read_toml(tmp_path / "huge.toml")

    @pytest.mark.parametrize("key", [".".join("a" * 30_000), " . ".join(["'a'"] * 21)])
    def test_a_key_of_many_parts_is_not_parsed(self, tmp_path, key):
        (tmp_path / "deep.toml").write_text(f"{key} = 1")
        with pytest.raises(ConfigError, match=r"deep\.toml: nested too deeply"):
            read_toml(tmp_path / "deep.toml")

    def test_many_dots_are_no_deep_key(self, tmp_path):
        (tmp_path / "a.toml").write_text(f"a.b = [{'0.5, ' * 100}]\nc = '{'../' * 50}{'x' * 1000}'\n")
        assert len(read_toml(tmp_path / "a.toml")["a"]["b"]) == 100

    def test_a_null_character_is_refused(self, tmp_path):
        for content in ('a = "\\u0000"', '"\\u0000" = 1', 'a = [{b = "\\u0000"}]'):
            (tmp_path / "null.toml").write_text(content)
            with pytest.raises(ConfigError, match=r"null\.toml: a null character"):
                read_toml(tmp_path / "null.toml")
        with pytest.raises(ConfigError, match="a null character"):
            read_toml("a\0.toml")
        with pytest.raises(ConfigError, match="a null character"):
            apply_overrides({}, ['prior_trials="a\\u0000b"'])


finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs"]))
stages = st.builds(Stage, text, st.floats(0, 1, exclude_min=True))
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
configs = st.builds(
    Config,
    training=st.builds(
        Training,
        epochs=st.integers(min_value=1),
        rate=finite,
        shuffle=st.booleans(),
        widths=st.lists(st.integers()).map(tuple),
        pair=st.tuples(st.integers(), st.integers()),
    ),
    name=text.filter(lambda name: name != "forbidden"),
    search=st.builds(
        Search,
        st.sampled_from(["bayesian", "random"]),
        st.none() | st.integers(),
        st.just("auto") | st.integers(),
    ),
    stages=st.lists(stages, max_size=3).map(tuple),
    extra=st.none() | stages,
    arguments=st.dictionaries(text, plain_values, max_size=3),
    folder=st.none() | st.just(Path("runs/mine")),
)


class TestPlain:
    def test_tuples_become_lists(self):
        assert to_plain(Config(Training(1), folder=Path("a/b"), stages=(Stage("s"),))) == {
            "training": {"epochs": 1, "rate": 0.1, "shuffle": True, "widths": [3, 4], "pair": [1, 2]},
            "name": "run",
            "search": {"kind": "bayesian", "budget": None, "limit": "auto"},
            "stages": [{"name": "s", "share": 1.0}],
            "extra": None,
            "arguments": {},
            "folder": "a/b",
        }

    @given(configs)
    def test_parse_reads_back_what_to_plain_writes(self, config):
        plain = to_plain(config)
        again = parse(Config, plain, "round trip")
        assert again == config
        assert to_plain(again) == plain
        assert digest(again) == digest(config)

    def test_a_value_json_cannot_hold_is_refused(self):
        with pytest.raises(ValueError, match="object"):
            to_plain(Config(Training(1), arguments={"a": object()}))


class TestDigest:
    def test_equal_settings_have_equal_digests(self):
        assert digest(Training(1, rate=1)) == digest(Training(1, rate=1.0))
        assert digest(Config(Training(1), arguments={"a": 1, "b": 2})) == digest(
            Config(Training(1), arguments={"b": 2, "a": 1})
        )

    def test_any_change_changes_it(self):
        changed = [Training(1), Training(2), Training(1, rate=0.2), Training(1, widths=(4, 3))]
        assert len({digest(training) for training in changed}) == len(changed)

    def test_it_never_changes_between_versions(self):
        """Run folders remember digests, so the canonical form is fixed."""
        canonical = b'{"budget":null,"kind":"bayesian","limit":"auto"}'
        assert digest(Search()) == hashlib.sha256(canonical).hexdigest()


def test_settings_need_no_torch():
    environment = {**os.environ, "PYTHONPATH": str(Path(bocl.errors.__file__).parents[1])}
    script = "import sys, bocl.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], env=environment).returncode == 0


@pytest.mark.parametrize("value", ["0x" + "f" * 5000, "9223372036854775808", "[1, {a = -9223372036854775809}]"])
def test_integers_beyond_64_bits_are_refused(tmp_path, value):
    (tmp_path / "my.toml").write_text(f"seed = {value}")
    with pytest.raises(ConfigError, match=r"my.toml: an integer of more than 64 bits"):
        read_toml(tmp_path / "my.toml")
    with pytest.raises(ConfigError, match=r"^--set seed=.{,60}: an integer of more than 64 bits"):
        apply_overrides({}, [f"seed={value}"])


@pytest.mark.parametrize("depth", [21, 240, 2000])
def test_nesting_without_end_is_refused(tmp_path, depth):
    (tmp_path / "my.toml").write_text(f"a = {'[' * depth}{']' * depth}")
    with pytest.raises(ConfigError, match=r"my.toml: nested too deeply"):
        read_toml(tmp_path / "my.toml")
    with pytest.raises(ConfigError, match="expected the form"):
        apply_overrides({}, [".".join("a" * depth) + "=1"])


def test_a_number_that_float32_cannot_hold_is_refused():
    from bocl.methods.den import DENSettings

    with pytest.raises(ConfigError, match=r"den.anchor is 1e\+300; it must be at most 1e\+30"):
        DENSettings(anchor=1e300)


def test_a_table_of_very_many_keys_is_refused_at_once(tmp_path):
    path = tmp_path / "many.toml"
    path.write_text("".join(f"a{number}=1\n" for number in range(5000)))
    with pytest.raises(ConfigError, match="a table of 5,000 keys, which no config has"):
        read_toml(path)


class TestNone:
    @pytest.mark.parametrize("setting", ["reward.alpha", "goal.target", "goal.budget", "search.bounds", "stream.tasks"])
    def test_takes_back_what_a_preset_sets(self, setting):
        section, _, name = setting.partition(".")
        made = load_config("digits", [f"{setting}=none"])
        assert getattr(getattr(made, section), name) == (5 if name == "tasks" else None)

    def test_in_a_file_it_is_quoted(self, tmp_path):
        (tmp_path / "mine.toml").write_text('reward.alpha = "none"\nstream.label = "none"\n')
        made = load_config(str(tmp_path / "mine.toml"))
        assert made.reward.alpha is None
        assert made.stream.label == "none", "a column may be called so"

    def test_where_there_must_be_a_value_it_is_refused(self):
        with pytest.raises(ConfigError, match=r'goal\.tolerance: expected a finite number, found the string "none"'):
            load_config("digits", ["goal.tolerance=none"])
