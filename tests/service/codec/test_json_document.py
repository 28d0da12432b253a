"""JSON from clients: invalid JSON, repeated keys and deep nesting are refused with one sentence."""

from __future__ import annotations

import pytest

from turnpike.service.codec.json_document import (
    MAX_EXPLAINED_BYTES,
    MAX_SEARCHED_BYTES,
    expect_flag,
    expect_short,
    expect_whole,
    has_more_than,
    keys,
    nesting_depth,
    parse,
    quoted,
    scalars,
    to_python,
)
from turnpike.service.errors import RequestError, TooLargeError

NAN = b'{"a": NaN}'
INVALID = "body: expected valid JSON, got "
NOT_FINITE = (
    "body: expected JSON, which has no NaN and no Infinity, got one at line 1, column %d; "
    "send them as binary data"
)
TOO_LARGE = "body: expected numbers that fit into 64 bits, got a larger one"
AT_COLUMN_34 = " at line 1, column 34: '10000000000000000000'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "body: expected a JSON object, got an empty body"),
        (b" \n", "body: expected a JSON object, got an empty body"),
        (b"{", INVALID + "only a part, which ends at line 1, column 2"),
        (b"[[0,0,", INVALID + "only a part, which ends at line 1, column 7"),
        (b"[" * 300, INVALID + "something else"),
        (b"{} {}", INVALID + "an error at line 1, column 4, near '{}'"),
        (b'{"a": 1,}', INVALID + "an error at line 1, column 8, near ',}'"),
        (b"{'a': 1}", INVALID + "an error at line 1, column 2, near \"'a': 1}\""),
        (b'{"a" 1}', INVALID + "an error at line 1, column 6, near '1}'"),
        (b'{"a":\n [1,\n 2 3]}', INVALID + "an error at line 3, column 4, near '3]}'"),
        (b'\xef\xbb\xbf{"a":}', INVALID + "an error at line 1, column 6, near '}'"),
        (
            '{"é": é}'.encode() + b" " * 99,
            INVALID + "an error at line 1, column 7, near 'é}" + " " * 18 + "'",
        ),
        (b'{"a": NoN}', INVALID + "an error at line 1, column 7, near 'NoN}'"),
        (b'{"a": nancy}', INVALID + "an error at line 1, column 7, near 'nancy}'"),
        (b'{"a": 01}', INVALID + "an error at line 1, column 7, near '01}'"),
        (b'{"a": ", NaN",}', INVALID + "an error at line 1, column 14, near ',}'"),
        (b'{"a": "\\ud800"}', INVALID + "an error at line 1, column 8, near '\\\\ud800\"}'"),
        (NAN, NOT_FINITE % 7),
        (b'{"a": [1, -Infinity]}', NOT_FINITE % 12),
        (b'{"a": "\xff"}', "body: expected JSON in UTF-8, got other bytes, b'\\xff' at offset 7"),
        (b'{"a": 1e400}', TOO_LARGE + " at line 1, column 7: '1e400}'"),
        (b'{"a": [18446744073709551616]}', TOO_LARGE + " at line 1, column 8: '18446744073709551616'"),
        (b'{"a": -9223372036854775809}', TOO_LARGE + " at line 1, column 7: '-9223372036854775809'"),
        (b'{"a": 18446744073709551615, "b": 1%b}' % (b"0" * 5000), TOO_LARGE + AT_COLUMN_34),
        (
            '{"é\\" 99999999999999999999": 1.0000000000000000000001,\n "é": 18446744073709551616}'.encode(),
            TOO_LARGE + " at line 2, column 7: '18446744073709551616'",
        ),
        (
            b"[" * 2000 + b"]" * 2000,
            "body: expected JSON nested less deeply (--max-depth), got over 1000 levels",
        ),
        (b"[]", "body: expected an object, got an array"),
        (b'"a"', "body: expected an object, got a string"),
        (b"null", "body: expected an object, got null"),
    ],
)
def test_anything_but_a_json_object_is_refused(text: bytes, message: str) -> None:
    """The message says what came instead, without the parser's own words."""
    with pytest.raises(RequestError) as caught:
        parse(text)
    assert (caught.value.status, str(caught.value)) == (400, message)


def test_the_error_of_a_long_text_has_no_position() -> None:
    """The text is not parsed again, which would take longer than to parse a valid one."""
    for number, message in (
        (
            b"0,]}",
            INVALID + "an error somewhere in 1048577 bytes; bodies of up to 1048576 bytes are searched",
        ),
        (b"100000000000000000000", TOO_LARGE),
    ):
        limit = MAX_EXPLAINED_BYTES if number == b"0,]}" else MAX_SEARCHED_BYTES
        for size in (limit, limit + 1):
            # the fault is at the end of what is searched
            text = b'{"a": [' + b" " * (size - len(number) - 7) + number
            with pytest.raises(RequestError) as caught:
                parse(text if number == b"0,]}" else text + b"]}")
            has_position = size == limit
            assert ("line 1, column" in str(caught.value)) == has_position
            assert has_position or str(caught.value) == message


def test_a_repeated_key_is_refused() -> None:
    with pytest.raises(RequestError, match="body: expected each key once, got 'a' twice"):
        keys(parse(b'{"a": 1, "b": 2, "\\u0061": 3}'), "body")


@pytest.mark.parametrize(
    ("text", "shown"), [("x" * 80, "x" * 80), ("x" * 81, "x" * 77 + "..."), ("x" * 10_000, "x" * 77 + "...")]
)
def test_long_names_are_cut_to_80_characters_in_messages(text: str, shown: str) -> None:
    assert quoted(text) == f"'{shown}'"


def test_parts_of_a_document_outlive_the_next_document() -> None:
    """A document kept alive by an error does not disturb the next request."""
    first = parse(b'{"a": [1, 2]}')
    part = first["a"]
    assert parse(b'{"a": 3}')["a"] == 3
    assert to_python(part) == [1, 2]


def test_strings_numbers_and_booleans_keep_their_type() -> None:
    found = scalars(
        parse(b'{"a": "x", "b": 1, "c": 1.5, "d": true, "e": 18446744073709551615}'), "parameters"
    )
    assert found == {"a": "x", "b": 1, "c": 1.5, "d": True, "e": 2**64 - 1}
    assert [type(value) for value in found.values()] == [str, int, float, bool, int]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": null}', r"parameters.'a': expected a string, a number or a boolean, got null"),
        (b'{"a": []}', "got an array"),
        (b'{"a": {}}', "got an object"),
        (b'{"a": 1, "a": 1}', "each key once"),
    ],
)
def test_parameters_of_other_types_are_refused(text: bytes, message: str) -> None:
    """The message names the place of the parameter."""
    with pytest.raises(RequestError, match=message):
        scalars(parse(text), "parameters")


def test_names_may_contain_nul() -> None:
    """A NUL does not end a name."""
    assert scalars(parse(b'{"a": 1, "a\\u0000b": 2}'), "parameters") == {"a": 1, "a\0b": 2}


@pytest.mark.timeout(20)
def test_the_number_of_keys_is_limited() -> None:
    """Too many keys are refused before any of them is read."""
    names = b",".join(b'"%d": 1' % number for number in range(1000))
    assert len(scalars(parse(b"{" + names + b"}"), "parameters")) == 1000
    with pytest.raises(RequestError, match="parameters: expected at most 1000 keys, got 1001"):
        scalars(parse(b"{" + names + b', "0": 2}'), "parameters")


@pytest.mark.slow
def test_an_array_of_more_than_2_to_24_values_becomes_a_list() -> None:
    """The parser's own element count is too small for such an array."""
    count = 2**24 + 10
    assert len(to_python(parse(b'{"a": [' + b"0," * (count - 1) + b"0]}")["a"])) == count


@pytest.mark.parametrize("value", [-1, 1.0, True, None, "1"])
def test_only_nonnegative_integers_are_whole_numbers(value: object) -> None:
    """Negative, fractional and quoted numbers are refused, and so is true."""
    with pytest.raises(RequestError, match="here: expected a whole number from 0, got"):
        expect_whole(value, "here")
    assert expect_whole(0, "here") == 0


@pytest.mark.parametrize("value", [0, 1, None, "true"])
def test_only_true_and_false_are_flags(value: object) -> None:
    """Other values that Python takes for true are refused."""
    with pytest.raises(RequestError, match="here: expected true or false, got"):
        expect_flag(value, "here")


@pytest.mark.parametrize(
    ("text", "deep"),
    [
        (b"{}", 1),
        (b'{"a": [[1], [{"b": []}]]}', 5),
        (b'{"a": "[[[[[["}', 1),
        (b'{"a": "\\"[[[", "b": "\\\\", "c": [1]}', 2),
        (b'{"a": "\\\\\\"[[", "b": [[2]]}', 3),
        (b"[" * 700 + b"]" * 700, 700),
        (b'["' + b'","' * 300 + b'", [[]]]', 3),
    ],
)
def test_brackets_in_strings_do_not_count_as_nesting(text: bytes, deep: int) -> None:
    """Escaped quotes inside the strings do not end them."""
    assert nesting_depth(text) == deep


@pytest.mark.parametrize("most", [-3, 0, 1, 2, 3, 8, 9, 20])
def test_has_more_than_equals_counting(most: int) -> None:
    """Few occurrences and many are counted in different ways."""
    for text in (b"", b"[", b"[[", b"a[b[c[", b"[" * 9, b"[" * 10, b"[" * 21):
        assert has_more_than(text, b"[", most) == (text.count(b"[") > most)


def test_json_over_the_size_limit_is_refused() -> None:
    """Parsing would block the event loop. The message names binary data as a remedy."""
    expect_short(b"12345678", 8)
    with pytest.raises(
        TooLargeError,
        match=r"expected at most 7 bytes of JSON \(--max-json\), got 8; binary data may be more",
    ):
        expect_short(b"12345678", 7)


def test_a_string_that_is_cut_off_is_passed_over_once() -> None:
    """If the search began anew at each quote in it, it would take minutes."""
    text = b'{"a": "' + b'\\"' * MAX_SEARCHED_BYTES + b'", "b": 18446744073709551616}'
    with pytest.raises(RequestError) as caught:
        parse(text)
    assert str(caught.value) == TOO_LARGE
