"""Split a shell line into commands, as Android's mksh does.

It handles quotes, backslashes, comments, `;`, `&&` and `||`. What a real shell would expand or run (`$name`,
backquotes, pipes, globs, braces, `~`) is refused: a line that contains it was not quoted correctly.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandResult:
    stdout: bytes = b""
    stderr: bytes = b""
    returncode: int = 0


def success_result(text: str) -> CommandResult:
    return CommandResult(f"{text}\n".encode(errors="backslashreplace"))


def error_result(text: str, returncode: int) -> CommandResult:
    return CommandResult(stderr=f"{text}\n".encode(errors="backslashreplace"), returncode=returncode)


class ShellSyntaxError(ValueError):
    """The line needs a real shell or is incomplete."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    argv: tuple[str, ...]
    operator: str = ";"  # runs always (";"), or if the previous command succeeded ("&&") or failed ("||")


def parse_commands(line: str) -> tuple[ShellCommand, ...]:
    """Return the commands of a line, in order."""
    commands: list[ShellCommand] = []
    argv: list[str] = []
    operator, i = ";", 0
    while i < len(line):
        char = line[i]
        separator = line[i : i + 2] if line[i : i + 2] in ("&&", "||") else char
        if char in " \t" or (char == "\n" and not argv):  # a line may end after && and ||
            i += 1
        elif separator in (";", "\n", "&&", "||"):
            if not argv:
                raise ShellSyntaxError(f"syntax error: no command before '{separator}'")
            commands.append(ShellCommand(tuple(argv), operator))
            argv, operator = [], ";" if separator == "\n" else separator
            i += len(separator)
        elif char == "#":
            i = line.find("\n", i) if "\n" in line[i:] else len(line)
        else:
            word, i = _parse_word(line, i)
            argv += word
    if argv:
        commands.append(ShellCommand(tuple(argv), operator))
    elif operator != ";":
        raise ShellSyntaxError(f"syntax error: no command operator '{operator}'")
    return tuple(commands)


def _parse_word(line: str, i: int) -> tuple[list[str], int]:
    """Return the word that starts at `i` (none for a mere line continuation) and its end."""
    parts: list[str] = []
    started = False
    if line[i] == "~":
        raise ShellSyntaxError("'~' is not quoted: a shell would expand it")
    while i < len(line) and line[i] not in " \t\n;" and line[i : i + 2] not in ("&&", "||"):
        char = line[i]
        if line[i : i + 2] == "\\\n":  # joins two lines
            i += 2
            continue
        started = True
        if char == "'":
            end = line.find("'", i + 1)
            if end < 0:
                raise ShellSyntaxError("syntax error: unclosed '")
            parts.append(line[i + 1 : end])
            i = end + 1
        elif char == '"':
            text, i = _parse_double_quoted(line, i + 1)
            parts.append(text)
        elif char == "\\":
            parts.append(line[i + 1 : i + 2] or "\\")
            i += 2
        elif char in "|&<>()$`*?[{":
            raise ShellSyntaxError(f"'{char}' is not quoted: a shell would interpret it")
        else:
            parts.append(char)
            i += 1
    return ["".join(parts)] if started else [], i


def _parse_double_quoted(line: str, i: int) -> tuple[str, int]:
    """Return the text from `i` to the closing quote, and the index after the quote."""
    parts: list[str] = []
    while i < len(line):
        char = line[i]
        if char == '"':
            return "".join(parts), i + 1
        if char == "\\" and line[i + 1 : i + 2] in ("$", "`", '"', "\\", "\n"):
            parts.append(line[i + 1].replace("\n", ""))
            i += 2
        elif char in "$`":
            raise ShellSyntaxError(f"'{char}' is expanded inside double quotes: use single quotes")
        else:
            parts.append(char)
            i += 1
    raise ShellSyntaxError('syntax error: unclosed "')
