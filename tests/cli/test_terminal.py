"""Texts of others reach the terminal as printable characters: a goal, a server's error, what is confirmed."""

import io
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from rich.table import Table
from rich.text import Text

from tests.helpers.command_line import GOAL, Uivlm
from tests.helpers.scripted_loop import Phone
from tests.helpers.tiny_models import episode, prepare
from uivlm.actions.action import Type
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import TypeText
from uivlm.safety.supervisor import ConfirmationRequest, TerminalSupervisor
from uivlm.terminal import Terminal, printable

HOSTILE = "\x1b]0;owned\x1b[2J \x9b2J \u202egnp.exe \u2066x\u200b\x00"  # title, screen, order, hidden
CODES = r"\x1b]0;owned\x1b[2J \x9b2J \u202egnp.exe \u2066x\u200b\x00"


def is_harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (HOSTILE, CODES),
        ("日本語 é 🙂", "日本語 é 🙂"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),  # a tag character: text that nobody sees
    ],
)
def test_other_characters_are_codes(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable("a\nb", keep="\n") == "a\nb"


def test_styles_and_tables_stay() -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, force_terminal=True, color_system="standard", width=200)
    table = Table("name")
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE, "red"))
    terminal.print(table)
    terminal.print(Text.assemble(("bold ", "bold"), (HOSTILE, "green")), soft_wrap=True)
    terminal.print(HOSTILE, markup=False, highlight=False)
    printed = file.getvalue()
    assert "\x9b" not in printed
    assert "\u202e" not in printed
    assert "\x1b]" not in printed
    assert "\x1b[2J" not in printed
    assert "\x1b[1mbold \x1b[0m\x1b[32m\\x1b]0;owned" in printed
    assert "┃" in printed


def test_show_prints_a_goal_as_it_is_written(uivlm: Uivlm, tmp_path: Path) -> None:
    prepare(tmp_path / "data", [episode(0, 2, goal=HOSTILE)])
    status, out, err = uivlm("show", "data")
    assert status == 0, err
    assert CODES in out.replace("\n", " ")
    assert is_harmless(out)


def test_the_error_of_a_server_is_printable(uivlm: Uivlm) -> None:
    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = HOSTILE.encode()
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        status, out, err = uivlm("run", GOAL, "--agent", f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
    assert status == 2
    assert r"\x1b]0;owned" in err
    assert is_harmless(out + err)


def test_what_is_confirmed_is_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a line end, which would be typed as Enter."""
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text="": asked.append(text) or "no")
    file = io.StringIO()
    typed = f"12{HOSTILE}\nperform it? yes"
    decision = Decision(Type(typed), f'Input text "{typed}"')
    request = ConfirmationRequest(Phone().screen(), decision, TypeText(typed), (f"{HOSTILE}\nharmless",))
    assert TerminalSupervisor(Terminal(file=file, width=500)).answer(request) == "no"
    printed = file.getvalue() + "".join(asked)
    assert f'next: Input text "12{CODES}\\nperform it? yes"\n  {CODES}\\nharmless\n' in printed
    assert is_harmless(printed)
