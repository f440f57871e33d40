"""A keyword is found in a label whatever its script and disguise, and only as a word."""
# ruff: noqa: RUF001 (letters that look alike are the point)

import tomllib
from pathlib import Path

import pytest

from uivlm.safety.labels import KEYWORDS_DIR, has_keyword, normalize, shipped_keywords
from uivlm.safety.policy import Policy

FILES = sorted(KEYWORDS_DIR.glob("*.toml"))


@pytest.mark.parametrize(
    ("label", "keyword"),
    [
        ("P\u200ba\u200by", "pay"),
        ("Pay\u200bnow", "pay"),
        ("De\u00adle\u00adte", "delete"),
        ("ＰＡＹ", "pay"),
        ("𝗣𝗮𝘆 now", "pay"),
        ("\u0405end", "send"),  # Cyrillic Dze
        ("\u0440\u0430\u0443", "pay"),  # Cyrillic throughout
        ("\u03a1ay", "pay"),  # Greek Rho
        ("\u041eплатить", "оплатить"),
        ("Oплатить", "оплатить"),  # a Latin O
        ("Log\u00a0out", "log out"),
        ("Log  out", "log out"),
        ("Log-out", "log out"),
        ("PayNow", "pay"),
        ("PAYNow", "pay"),
        ("dElEtE", "delete"),
        ("pay_now", "pay"),
        ("Pay10", "pay"),
        ("p\u0336a\u0336y\u0336", "pay"),
        ("SİL", "sil"),
        ("SATIN AL", "satın al"),
        ("STRASSE LÖSCHEN", "straße löschen"),
        ("支 付", "支付"),
        ("\u0645\u0648\u0627\u0641\u0640\u0640\u0642", "موافق"),
    ],
)
def test_a_disguised_keyword_is_found(label: str, keyword: str) -> None:
    assert has_keyword(label, [keyword])


@pytest.mark.parametrize(
    ("label", "keyword"),
    [
        ("确认支付", "支付"),
        ("完全に削除", "削除"),
        ("Kontolöschen", "löschen"),
        ("ลบบัญชี", "ลบ"),
        ("계정삭제", "삭제"),
        ("今すぐBuyする", "buy"),
        ("Zahlungspflichtig bestellen", "zahl*"),
        ("Call Anna", "^call"),
        ("OK!", "^ok$"),
    ],
)
def test_a_word_of_ones_own_is_found_in_its_script(label: str, keyword: str) -> None:
    assert has_keyword(label, [keyword])


@pytest.mark.parametrize(
    ("label", "keyword"),
    [
        ("Voice recorder", "order"),
        ("Border", "order"),
        ("Recall", "call"),
        ("Payload", "pay"),
        ("Missed call", "^call"),
        ("OK, later", "^ok$"),
        ("Bezahlen", "zahl*"),
        ("无关", "支付"),
        ("", "pay"),
        ("42 €", "pay"),
    ],
)
def test_another_word_is_not_a_keyword(label: str, keyword: str) -> None:
    assert not has_keyword(label, [keyword])


@pytest.mark.parametrize(
    "label",
    [
        *("Withdraw", "Wipe data", "Approve", "Authorize", "Proceed", "Yes", "Book now", "Empty trash"),
        *("Payment", "Pay $12.00 to John Smith and Sons"),
        *("Bezahlen", "Löschen", "支付", "发送", "Pagar", "Удалить"),
    ],
)
def test_what_version_0_2_missed_is_asked_for(label: str) -> None:
    assert has_keyword(label, Policy().confirm_labels)


def test_a_list_of_ones_own_replaces_the_shipped_one() -> None:
    assert Policy().confirm_labels == shipped_keywords()
    assert not has_keyword("Pay", Policy(confirm_labels=("launch",)).confirm_labels)


def test_each_language_has_words_for_each_concept() -> None:
    assert len(FILES) == 21
    concepts = [tomllib.loads(file.read_text("utf-8")) for file in FILES]
    for file, words in zip(FILES, concepts, strict=True):
        assert list(words) == list(concepts[0]), file
        assert all(words.values()), file


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_shipped_keyword_finds_itself(file: Path) -> None:
    for keywords in tomllib.loads(file.read_text("utf-8")).values():
        assert len(set(keywords)) == len(keywords)
        for keyword in keywords:
            assert len(normalize(keyword)) > 1 or keyword.startswith("^"), keyword
            assert has_keyword(keyword.strip("^$*"), [keyword]), keyword
