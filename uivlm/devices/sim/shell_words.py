"""A shell line -> its commands as words, the way Android's mksh splits it.

Quotes, backslashes, comments, `;`, `&&` and `||` are understood. Whatever a real shell would expand or run
(`$name`, backquotes, pipes, globs, braces, `~`) is refused: a line that needs it was quoted wrongly.
"""

from dataclasses import dataclass


class ShellSyntaxError(ValueError):
    """The line needs a real shell, or is cut short."""


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    after: str = ";"  # how it follows the command before: ";" always, "&&" if that went well, "||" if not


def commands(line: str) -> tuple[Command, ...]:
    """The commands of a line, in order."""
    found: list[Command] = []
    words: list[str] = []
    after, i = ";", 0
    while i < len(line):
        mark = line[i]
        joiner = line[i : i + 2] if line[i : i + 2] in ("&&", "||") else mark
        if mark in " \t" or (mark == "\n" and not words):  # a line may break after && and ||
            i += 1
        elif joiner in (";", "\n", "&&", "||"):
            if not words:
                raise ShellSyntaxError(f"syntax error: no command before '{joiner}'")
            found.append(Command(tuple(words), after))
            words, after = [], ";" if joiner == "\n" else joiner
            i += len(joiner)
        elif mark == "#":
            i = line.find("\n", i) if "\n" in line[i:] else len(line)
        else:
            word, i = _word(line, i)
            words += word
    if words:
        found.append(Command(tuple(words), after))
    elif after != ";":
        raise ShellSyntaxError(f"syntax error: no command after '{after}'")
    return tuple(found)


def _word(line: str, i: int) -> tuple[list[str], int]:
    """The word that starts at `i` and where it ends; none where only a line was joined to the next."""
    said: list[str] = []
    begun = False
    if line[i] == "~":
        raise ShellSyntaxError("'~' is not quoted: a shell would expand it")
    while i < len(line) and line[i] not in " \t\n;" and line[i : i + 2] not in ("&&", "||"):
        mark = line[i]
        if line[i : i + 2] == "\\\n":  # joins two lines
            i += 2
            continue
        begun = True
        if mark == "'":
            end = line.find("'", i + 1)
            if end < 0:
                raise ShellSyntaxError("syntax error: a ' is never closed")
            said.append(line[i + 1 : end])
            i = end + 1
        elif mark == '"':
            text, i = _double_quoted(line, i + 1)
            said.append(text)
        elif mark == "\\":
            said.append(line[i + 1 : i + 2] or "\\")
            i += 2
        elif mark in "|&<>()$`*?[{":
            raise ShellSyntaxError(f"'{mark}' is not quoted: a shell would not take it as text")
        else:
            said.append(mark)
            i += 1
    return ["".join(said)] if begun else [], i


def _double_quoted(line: str, i: int) -> tuple[str, int]:
    """The text from `i` to the closing quote and where the word goes on."""
    said: list[str] = []
    while i < len(line):
        mark = line[i]
        if mark == '"':
            return "".join(said), i + 1
        if mark == "\\" and line[i + 1 : i + 2] in ("$", "`", '"', "\\", "\n"):
            said.append(line[i + 1].replace("\n", ""))
            i += 2
        elif mark in "$`":
            raise ShellSyntaxError(f"'{mark}' stays live inside double quotes: use single quotes")
        else:
            said.append(mark)
            i += 1
    raise ShellSyntaxError('syntax error: a " is never closed')
