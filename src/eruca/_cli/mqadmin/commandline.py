"""Command lines of mqadmin: how a command is declared, and how its flags are read.

mqadmin reads its flags with the POSIX parser of commons-cli 1.2, and scripts rely on what that accepts: `-t X`, `-tX`,
`-topic X`, `--topic X`, `--topic=X`, and switches in one word.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from eruca.errors import ConfigError

if TYPE_CHECKING:
    from eruca._cli.mqadmin.call import Call

#: Does the work of a command.
Work = Callable[["Call"], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a command."""

    letter: str
    # Its long name, as Java has it.
    name: str
    about: str
    # Whether a value follows.
    value: bool = True
    required: bool = False
    # Of the flags that are marked like this exactly one is given.
    one_of: bool = False
    # Java's mqadmin does not have it. It has no letter.
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its names, its flags, and the function that does it."""

    name: str
    about: str
    # Module and function, imported when the command runs.
    target: str
    # The command of ours that does the same.
    instead: str
    flags: tuple[Flag, ...] = ()
    alias: str = ""
    # At least one of these letters is needed. Without one Java's mqadmin prints its help, or nothing.
    needs: str = ""
    # How long a server may take for one answer, in seconds. Java waits for some answers longer than for others.
    timeout: float = 5.0


COMMON = (
    Flag("h", "help", "print this help", value=False),
    Flag("n", "namesrvAddr", "name servers, for example '192.168.0.1:9876;192.168.0.2:9876'"),
)


class Line:
    """The flags of one command line. Values come without the space around them."""

    def __init__(self, command: Command, values: dict[str, str]) -> None:
        self.command = command
        # By letter; by name if it has none. A switch has an empty value.
        self._values = values

    def has(self, flag: str) -> bool:
        """Whether a flag was given."""
        return flag in self._values

    def find(self, flag: str) -> str | None:
        """Return the value of a flag; None if it was not given."""
        return self._values.get(flag)

    def text(self, flag: str, default: str = "") -> str:
        """Return the value of a flag."""
        return self._values.get(flag, default)

    def number(self, flag: str, default: int = 0) -> int:
        """Return the number a flag has. Raises ConfigError."""
        text = self._values.get(flag)
        if text is None:
            return default
        digits = text[1:] if text.startswith(("-", "+")) else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
            raise ConfigError(f"{self.describe(flag)} {text!r} is not a whole number")
        return int(text)

    def is_true(self, flag: str, default: bool = False) -> bool:
        """Whether the value of a flag is `true`; anything else is false, as in Java."""
        text = self._values.get(flag)
        return default if text is None else text.lower() == "true"

    def describe(self, flag: str) -> str:
        """Return a flag as people write it."""
        return f"-{flag}" if len(flag) == 1 else f"--{flag}"


_DIGITS_MAX = 18


def parse(command: Command, words: Sequence[str]) -> Line:
    """Read the words after the name of a command. Raises UsageError, which shows the flags."""
    known = Known(command)
    values: dict[str, str] = {}
    tokens = list(flatten(known, words))
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token == "--":
            break
        if token == "-" or not token.startswith("-"):
            continue  # commons-cli ignores words that belong to no flag
        flag = known.find(token)
        if flag is None:
            raise usage_error(command, f"unknown option {token}")
        key = flag.letter or flag.name
        value = ""
        if flag.value:
            if at == len(tokens) or (tokens[at].startswith("-") and known.find(tokens[at]) is not None):
                raise usage_error(command, f"option {token} needs a value")
            value = _unquote(tokens[at]).strip()
            at += 1
        values.setdefault(key, value)
    if "h" not in values:
        _check_complete(command, values)
    return Line(command, values)


class Known:
    """The flags of a command, by their names."""

    def __init__(self, command: Command) -> None:
        self._flags = {name: flag for flag in (*COMMON, *command.flags) for name in (flag.letter, flag.name) if name}

    def find(self, word: str) -> Flag | None:
        """Return the flag with a letter or a name, whatever hyphens precede it."""
        return self._flags.get(word.removeprefix("-").removeprefix("-"))


def flatten(known: Known, words: Sequence[str]) -> Iterator[str]:
    """Yield the words with combined ones taken apart: `--topic=X` and `-tX` become two, `-lm` becomes `-l -m`."""
    for word in words:
        if word.startswith("--") and word != "--":
            name, equals, value = word.partition("=")
            if known.find(name) is None or not equals:
                yield word
            else:
                yield name
                yield value
        elif word.startswith("-") and len(word) > 2 and known.find(word) is None:
            yield from _burst(known, word)
        else:
            yield word


def _burst(known: Known, word: str) -> Iterator[str]:
    for index in range(1, len(word)):
        flag = known.find(word[index])
        if flag is None:
            yield word
            return
        yield f"-{word[index]}"
        if flag.value and index + 1 < len(word):
            yield word[index + 1 :]
            return


def _unquote(text: str) -> str:
    return text.removeprefix('"').removesuffix('"')


def _check_complete(command: Command, values: dict[str, str]) -> None:
    missing = [flag for flag in command.flags if flag.required and flag.letter not in values]
    if missing:
        names = ", ".join(f"-{flag.letter} ({flag.name})" for flag in missing)
        raise usage_error(command, f"missing {names}")
    rivals = [flag.letter for flag in command.flags if flag.one_of]
    given = [letter for letter in rivals if letter in values]
    if len(given) > 1:
        raise usage_error(command, f"{_join(given, 'and')} exclude each other")
    needed = rivals or list(command.needs)
    if needed and not any(letter in values for letter in needed):
        raise usage_error(command, f"one of {_join(needed, 'and')} is needed")


def _join(letters: Sequence[str], word: str) -> str:
    return f" {word} ".join(f"-{letter}" for letter in letters)


def usage_error(command: Command, what: str) -> click.UsageError:
    """Return the error for a command line that is not valid; it shows the flags of the command."""
    error = click.UsageError(f"{what}\n{describe_usage(command)}")
    error.ctx = None
    return error


def describe_usage(command: Command) -> str:
    """Return the flags of a command, a line for each."""
    flags = [*command.flags, *COMMON]
    heads = [_name_flag(flag) for flag in flags]
    width = max(map(len, heads))
    lines = [f"usage: eruca admin {command.name}{''.join(_outline(flag) for flag in flags)}"]
    lines += [f"  {head.ljust(width)}  {_explain(command, flag)}" for head, flag in zip(heads, flags, strict=True)]
    return "\n".join(lines)


def _name_flag(flag: Flag) -> str:
    names = f"-{flag.letter}, --{flag.name}" if flag.letter else f"    --{flag.name}"
    return f"{names} <arg>" if flag.value else names


def _outline(flag: Flag) -> str:
    word = f"-{flag.letter}" if flag.letter else f"--{flag.name}"
    if flag.value:
        word += " <arg>"
    return f" {word}" if flag.required else f" [{word}]"


def _explain(command: Command, flag: Flag) -> str:
    if flag.required:
        return f"{flag.about} (required)"
    if flag.one_of or (flag.letter and flag.letter in command.needs):
        return f"{flag.about} (one of these is required)"
    return flag.about
