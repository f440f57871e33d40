"""Whether a label has one of some keywords, in any script and under common disguises.

A keyword is one or more words: "pay", "log out", "支付". "zahl*" is the beginning of a word, "^call" the
beginning of a label, "^ok$" a whole label.
"""

import re
import tomllib
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

KEYWORDS_DIR = Path(__file__).parent / "keywords"  # a TOML file per language: concept = [keywords]
MIN_COMPOUND_KEYWORD = 5  # letters of a keyword that also counts at the end of a longer word
MIN_COMPOUND_REST = 4  # letters before it: Kontolöschen, but not recorder

# Scripts whose words are not separated by blanks, and Hangul, whose words are joined freely: Thai and Lao,
# Burmese, Hangul, Khmer, kana, Han.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3041-\u3096\u30a1-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
)
BLANK_INSIDE = re.compile(f"(?<=[{UNSPACED}]) +(?=[{UNSPACED}])")
SCRIPT_CHANGE = re.compile(f"(?<=[{UNSPACED}])(?=[^ {UNSPACED}])|(?<=[^ {UNSPACED}])(?=[{UNSPACED}])")

# Accents that belong to no letter, Arabic vowel signs and its stretching letter, the dots of Hindi and
# Bengali loans, and fillers and selectors that are drawn as nothing.
DROPPED = re.compile("[\u0300-\u036f\u0640\u064b-\u065f\u0670\u093c\u09bc\u115f\u1160\ufe00-\ufe0f]")
# Letters that are drawn as, or written for, another one. Labels and keywords are both mapped in lower case,
# so this has those, too, that look alike only as capitals.
SAME_LETTER = str.maketrans(
    "авсеѕніјкӏморԛтухԁһԝѵ" "αβεζηικμνορτυχ" "ıɑɡ" "أإآٱيىك",  # noqa: RUF001
    "abceshijklmopqtyxdhwv" "abezhikmnoptyx" "iag" "ااااییک",
)  # fmt: skip


def has_keyword(label: str, keywords: Sequence[str]) -> bool:
    """Whether a keyword is in the label as a whole word; in scripts without blanks, anywhere.

    Each keyword must have a letter.
    """
    by_start, compounds = _compile(tuple(keywords))
    text = "".join(f"^ {words} $" for words in {normalize(form) for form in _forms(label)})
    if any(text.startswith(by_start.get(text[i : i + n], ()), i) for i in range(len(text)) for n in (1, 2)):
        return True
    return any(
        word[start:] in compounds
        for word in text.split()
        for start in range(MIN_COMPOUND_REST, len(word) - MIN_COMPOUND_KEYWORD + 1)
    )


def normalize(text: str) -> str:
    """The words of a text: letters in one form and case, without digits, signs and invisible characters.

    Blanks separate words, and the scripts that use them from those that do not.
    """
    text = unicodedata.normalize("NFKC", _replace_invisible(text, "").casefold())
    text = DROPPED.sub("", text).translate(SAME_LETTER)
    text = "".join(char if unicodedata.category(char)[0] in "LM" else " " for char in text)
    text = SCRIPT_CHANGE.sub(" ", BLANK_INSIDE.sub("", text))
    return " ".join(text.split())


def _forms(label: str) -> tuple[str, ...]:
    """The label without its invisible characters, with camel case split, and with blanks for them."""
    visible = _replace_invisible(label, "")
    return visible, _split_camel_case(visible), _replace_invisible(label, " ")


def _split_camel_case(text: str) -> str:
    """PayNow -> Pay Now, PAYNow -> PAY Now."""
    starts = (
        char.isupper() and (before.islower() or (before.isupper() and after.islower()))
        for before, char, after in zip(" " + text, text, text[1:] + " ", strict=False)
    )
    return "".join(" " * start + char for start, char in zip(starts, text, strict=True))


def _replace_invisible(text: str, by: str) -> str:
    """Replaces format characters: zero-width ones, soft hyphens, marks of direction."""
    text = unicodedata.normalize("NFKC", text)
    return "".join(by if unicodedata.category(char) == "Cf" else char for char in text)


@lru_cache(maxsize=1)
def shipped_keywords() -> tuple[str, ...]:
    """The keywords of all languages for what cannot be undone."""
    files = sorted(KEYWORDS_DIR.glob("*.toml"))
    concepts = [words for file in files for words in tomllib.loads(file.read_text("utf-8")).values()]
    return tuple(dict.fromkeys(word for words in concepts for word in words))


@lru_cache(maxsize=8)
def _compile(keywords: tuple[str, ...]) -> tuple[dict[str, tuple[str, ...]], frozenset[str]]:
    """What to look for in "^ words $", by its first two characters, and what may end a longer word."""
    by_start, compounds = defaultdict[str, list[str]](list), set()
    for keyword in keywords:
        words = normalize(keyword)
        begin = "^ " if keyword.startswith("^") else " " * _is_spaced(words[0])
        end = " $" if keyword.endswith("$") else " " * (_is_spaced(words[-1]) and not keyword.endswith("*"))
        needle = begin + words + end
        by_start[needle[:2]].append(needle)
        if begin == end == " " and " " not in words and len(words) >= MIN_COMPOUND_KEYWORD:
            compounds.add(words)
    return {start: tuple(needles) for start, needles in by_start.items()}, frozenset(compounds)


def _is_spaced(letter: str) -> bool:
    return re.match(f"[{UNSPACED}]", letter) is None
