"""Strangers' text and numbers before they are shown."""

from __future__ import annotations

import json
import math
import sys
import unicodedata

import pytest
from hostile_texts import TEXTS

from pallas_evo.reporting.safe import NOTHING, brief, cut, embedded, figure, finite, fixed, visible


def test_every_character_without_a_look_is_written_out():
    """All of Unicode: controls, formats, halves, separators of lines; what is left has a look or is a blank."""
    allowed = {"\n", "\t"}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") and character not in allowed:
            assert visible(character) == f"⟨U+{code:04X}⟩"
    for character in "\u00ad\u061c\u200b\u200d\u200e\u202e\u2060\u2066\u2069\ufeff\ufe0f\U000e0041\u3164\uffff":
        assert visible(f"a{character}b") == f"a⟨U+{ord(character):04X}⟩b"


def test_plain_text_stays_as_it_is():
    text = "def kernel(x):\n\treturn x  # naïve Ωmega 中文 \U0001f9e0 e\u0301"
    assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"


def test_a_pile_of_marks_covers_no_other_line():
    assert visible("a" + "\u0301" * 5000 + "b") == "a" + "\u0301" * 3 + "b"


@pytest.mark.parametrize("name", TEXTS)
def test_a_short_text_is_one_short_line(name):
    said = brief(TEXTS[name], 30)
    assert len(said) <= 30
    assert said == " ".join(said.split())


def test_what_is_cut_is_counted():
    assert cut("abc", most=10, widest=10) == "abc"
    assert cut("abcdef", most=4, widest=10) == "abcd\n… 2 characters more"
    assert cut("abcdef\nx", most=10, widest=4) == "abcd … 2 characters more\nx"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, NOTHING), (0, "0"), (0.0, "0"), (12, "12"), (1234567, "1,234,567"), (1.2345, "1.23"), (12.345, "12.3"),
        (1234.5, "1,234"), (0.00123, "0.00123"), (2.26e-8, "2.3e-8"), (1.5e9, "1.5e9"), (math.nan, "nan"),
        (-math.inf, "-inf"), ("text", "text"), (True, "True"), ([1], "[1]"),
    ],
)  # fmt: skip
def test_numbers_in_few_digits(value, said):
    assert figure(value) == said


def test_numbers_with_decimals():
    assert fixed(1.005, 1, " %") == "1.0 %"
    assert fixed(None) == NOTHING
    assert fixed("<b>") == "<b>"  # escaped where it is shown
    assert fixed(1e300) == "1.00e+300"
    assert finite(10**400) is None
    assert finite(True) is None


@pytest.mark.parametrize("name", TEXTS)
def test_data_comes_back_and_has_no_brackets(name):
    text = TEXTS[name]
    said = embedded({"a": [text, {"b": math.nan}]})
    assert said.isascii()
    assert not set("<>&") & set(said)
    assert json.loads(said)["a"][0] == text.encode("utf-8", "replace").decode()
