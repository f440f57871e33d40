"""Prefixes of action text: can incomplete text become an action, and how is it completed?

In: a prefix, and the ActionText that parses it. `is_prefix` is true of every prefix of an action's text.
Where it is true, `complete_action` returns the text of an action that starts with the prefix. Decoding uses
the automaton of `text_automaton.py`, which accepts the same prefixes.
"""

import re

from uivlm.actions.action import InvalidAction
from uivlm.actions.text import FIXED_PHRASES, TEXT_PREFIX, TEXT_SUFFIX, ActionText

TAP_PARTS, SWIPE_PARTS = ("tap at ", " "), ("swipe from ", " ", " to ", " ")  # the text before each number
DIGITS = re.compile("[0-9]*")
# a JSON string in canonical form: a plain character, or one that must be escaped
PLAIN_ESCAPE = r'\\(?:["\\bfnrt]|u(?:00(?:0[0-7be f]|1[0-9a-f])|d[89a-f][0-9a-f]{2}))'.replace(" ", "")
PLAIN_TEXT = re.compile(rf'(?:[^"\\\x00-\x1f\ud800-\udfff]|{PLAIN_ESCAPE})*')
PARTIAL_ESCAPE = re.compile(r"\\(?:u(?:0(?:0(?:[01])?)?|d(?:[89a-f][0-9a-f]?)?)?)?")
ESCAPE_ENDINGS = {"\\": "n", "\\u": "0000", "\\u0": "000", "\\u00": "00", "\\u000": "0", "\\u001": "0"}


def is_prefix(text: str, action_text: ActionText) -> bool:
    """Is there an action whose text starts with `text`?"""
    if any(phrase.startswith(text) for phrase in (*FIXED_PHRASES, TEXT_PREFIX)):
        return True
    if text.startswith(TEXT_PREFIX):
        rest = _partial_escape(text)
        return rest in ("", TEXT_SUFFIX) or PARTIAL_ESCAPE.fullmatch(rest) is not None
    return (
        _complete_gesture(text, TAP_PARTS, action_text) is not None
        or _complete_gesture(text, SWIPE_PARTS, action_text) is not None
    )


def action_type_is_determined(text: str) -> bool:
    """Does the prefix fix the action's type, if not yet its arguments?"""
    openings = (*FIXED_PHRASES, TEXT_PREFIX, TAP_PARTS[0], SWIPE_PARTS[0])
    return sum(opening.startswith(text) or text.startswith(opening) for opening in openings) <= 1


def complete_action(text: str, action_text: ActionText) -> str:
    """The text with the shortest ending that makes it an action. ValueError if it is not a prefix of one."""
    if not isinstance(action_text.parse(text), InvalidAction):
        return text
    if text.startswith(TEXT_PREFIX) and is_prefix(text, action_text):
        rest = _partial_escape(text)
        surrogate = "d800"[len(rest) - 2 :] if rest.startswith("\\ud") else ""
        return text + (surrogate or ESCAPE_ENDINGS.get(rest, "")) + TEXT_SUFFIX
    for phrase in (*FIXED_PHRASES, f"{TEXT_PREFIX}{TEXT_SUFFIX}"):
        if phrase.startswith(text):
            return phrase
    for form in (TAP_PARTS, SWIPE_PARTS):
        if (whole := _complete_gesture(text, form, action_text)) is not None:
            return whole
    raise ValueError(f"no action begins with {text!r}")


def _partial_escape(text: str) -> str:
    """What follows the complete characters of a typed text."""
    match = PLAIN_TEXT.match(text, len(TEXT_PREFIX))
    assert match is not None, "the pattern also matches the empty string"
    return text[match.end() :]


def _complete_gesture(text: str, parts: tuple[str, ...], action_text: ActionText) -> str | None:
    """The text of a gesture that starts with `text`; None if there is none."""
    rest, numbers = text, list[int]()
    for before in parts:
        if before.startswith(rest):  # the text ends before the next number
            return _fill(numbers, parts, "", action_text)
        if not rest.startswith(before):
            return None
        match = DIGITS.match(rest, len(before))
        assert match is not None, "the pattern also matches the empty string"
        digits, rest = match[0], rest[match.end() :]
        if not rest:
            return _fill(numbers, parts, digits, action_text)
        if not _is_bin(digits, action_text):
            return None
        numbers.append(int(digits))
    return None


def _fill(numbers: list[int], parts: tuple[str, ...], digits: str, action_text: ActionText) -> str | None:
    """The gesture with these numbers, then one that starts with `digits`, then any that make it an action."""
    for value in (n for n in range(action_text.num_bins) if str(n).startswith(digits)):
        values = [*numbers, value]
        while len(values) < len(parts):  # a swipe's end is far from its start; otherwise it would be a tap
            start = values[len(values) - 2] if len(values) > 1 else 0
            values.append(action_text.num_bins - 1 if start < action_text.num_bins / 2 else 0)
        whole = "".join(f"{before}{n}" for before, n in zip(parts, values, strict=True))
        if not isinstance(action_text.parse(whole), InvalidAction):
            return whole
    return None


def _is_bin(digits: str, action_text: ActionText) -> bool:
    plain = digits == "0" or (digits != "" and digits[0] != "0")
    return plain and len(digits) <= len(str(action_text.num_bins - 1)) and int(digits) < action_text.num_bins
