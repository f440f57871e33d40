"""Beginnings of the language's phrases: may words that are not complete yet become an action, and how are they ended?

In: words as far as they were said, and the Language that parses them. What holds: every beginning of an action's words begins
one; where `begins` is true, `ended` gives an action's words that begin so.
"""

import re

from uivlm.actions.language import FIXED, TEXT_CLOSE, TEXT_OPEN, Language, NotAnAction

TAP, SWIPE = ("tap at ", " "), ("swipe from ", " ", " to ", " ")  # what stands before each number
DIGITS = re.compile("[0-9]*")
# a JSON string in its plain form: a character, or one that must be escaped
ESCAPED = r'\\(?:["\\bfnrt]|u(?:00(?:0[0-7be f]|1[0-9a-f])|d[89a-f][0-9a-f]{2}))'.replace(" ", "")
TYPED = re.compile(rf'(?:[^"\\\x00-\x1f\ud800-\udfff]|{ESCAPED})*')
OPEN_ESCAPE = re.compile(r"\\(?:u(?:0(?:0(?:[01])?)?|d(?:[89a-f][0-9a-f]?)?)?)?")
NUMBER = re.compile("[0-9]+")
# every phrase, a number of any length as #
SHAPES = (*FIXED, TEXT_OPEN, *("#".join((*form, "")) for form in (TAP, SWIPE)))
ENDS = {"\\": "n", "\\u": "0000", "\\u0": "000", "\\u00": "00", "\\u000": "0", "\\u001": "0"}


def begins(words: str, language: Language) -> bool:
    """Is there an action whose words begin so?"""
    if any(phrase.startswith(words) for phrase in (*FIXED, TEXT_OPEN)):
        return True
    if words.startswith(TEXT_OPEN):
        rest = _after_plain(words)
        return rest in ("", TEXT_CLOSE) or OPEN_ESCAPE.fullmatch(rest) is not None
    return _gesture(words, TAP, language) is not None or _gesture(words, SWIPE, language) is not None


def fits(piece: str) -> bool:
    """May a piece stand anywhere in an action's words outside of typed texts? A piece that opens one may go on in it as it likes.
    True of some that fit nowhere: only `begins` knows what came before."""
    phrase, opening, _ = piece.partition(TEXT_OPEN[-1])
    shape = NUMBER.sub("#", phrase) + opening
    return any(shape in one for one in SHAPES)


def kind_is_told(words: str) -> bool:
    """Do the words already say which kind of action it is, if not yet where or what?"""
    openings = (*FIXED, TEXT_OPEN, TAP[0], SWIPE[0])
    return sum(one.startswith(words) or words.startswith(one) for one in openings) <= 1


def ended(words: str, language: Language) -> str:
    """The words, and the least that makes an action of them. ValueError where they begin none."""
    if not isinstance(language.parse(words), NotAnAction):
        return words
    if words.startswith(TEXT_OPEN) and begins(words, language):
        rest = _after_plain(words)
        surrogate = "d800"[len(rest) - 2 :] if rest.startswith("\\ud") else ""
        return words + (surrogate or ENDS.get(rest, "")) + TEXT_CLOSE
    for phrase in (*FIXED, f"{TEXT_OPEN}{TEXT_CLOSE}"):
        if phrase.startswith(words):
            return phrase
    for form in (TAP, SWIPE):
        if (whole := _gesture(words, form, language)) is not None:
            return whole
    raise ValueError(f"no action begins with {words!r}")


def _after_plain(words: str) -> str:
    """What follows the characters of a typed text that are whole."""
    found = TYPED.match(words, len(TEXT_OPEN))
    assert found is not None, "it matches nothing, too"
    return words[found.end() :]


def _gesture(words: str, form: tuple[str, ...], language: Language) -> str | None:
    """A gesture's words that begin so; None where there are none."""
    rest, numbers = words, list[int]()
    for before in form:
        if before.startswith(rest):  # it ends before the next number
            return _filled(numbers, form, "", language)
        if not rest.startswith(before):
            return None
        found = DIGITS.match(rest, len(before))
        assert found is not None, "it matches nothing, too"
        digits, rest = found[0], rest[found.end() :]
        if not rest:
            return _filled(numbers, form, digits, language)
        if not _is_bin(digits, language):
            return None
        numbers.append(int(digits))
    return None


def _filled(numbers: list[int], form: tuple[str, ...], digits: str, language: Language) -> str | None:
    """The form with these numbers, the next one beginning with `digits`, the others as an action needs them."""
    for number in (n for n in range(language.bins) if str(n).startswith(digits)):
        values = [*numbers, number]
        while len(values) < len(form):  # the end of a swipe lies far from its start, so that it is no tap
            start = values[len(values) - 2] if len(values) > 1 else 0
            values.append(language.bins - 1 if start < language.bins / 2 else 0)
        whole = "".join(f"{before}{value}" for before, value in zip(form, values, strict=True))
        if not isinstance(language.parse(whole), NotAnAction):
            return whole
    return None


def _is_bin(digits: str, language: Language) -> bool:
    plain = digits == "0" or (digits != "" and digits[0] != "0")
    return plain and len(digits) <= len(str(language.bins - 1)) and int(digits) < language.bins
