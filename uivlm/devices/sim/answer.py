"""What a command of a phone's shell answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    out: bytes = b""
    err: bytes = b""
    code: int = 0


def told(text: str) -> Answer:
    return Answer(f"{text}\n".encode(errors="backslashreplace"))


def failed(text: str, code: int) -> Answer:
    return Answer(err=f"{text}\n".encode(errors="backslashreplace"), code=code)
