r"""Translate Java's regular expressions (option subscribePattern) to Python's, or reject them.

Patterns are matched against entire topic names, which contain only letters, digits, dot, dash and
underscore. A character class is therefore the set of these characters that it contains, and line
ends do not occur. An expression that Python would interpret differently from Java is translated
(quotes, named groups, classes with && or nested classes, \p, flags inside) or rejected.
Source: java.util.regex.Pattern of Java 17; Kafka matches the entire name.
"""

import re
import string
import unicodedata
from collections.abc import Callable
from typing import Final, NoReturn

from sparklog.errors import InvalidRequestError

_ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
_ASCII: Final = frozenset(map(chr, range(128)))
_FLAGS: Final = "idmsu"  # those but i are about line ends and other letters
_SHORT: Final = {
    "d": frozenset(string.digits), "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset(" \t\n\x0b\f\r"), "h": frozenset(" \t"), "v": frozenset("\n\x0b\f\r"),
}  # fmt: skip
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CASED: Final = frozenset({"Lower", "Upper", "Ll", "Lu", "Lt"})
_POSIX: Final = {
    "Lower": frozenset(string.ascii_lowercase), "Upper": frozenset(string.ascii_uppercase),
    "ASCII": _ASCII, "Alpha": frozenset(string.ascii_letters), "Digit": frozenset(string.digits),
    "Alnum": frozenset(string.ascii_letters + string.digits), "XDigit": frozenset(string.hexdigits),
    "Punct": frozenset(string.punctuation),
    "Graph": frozenset(string.ascii_letters + string.digits + string.punctuation),
    "Print": frozenset(string.ascii_letters + string.digits + string.punctuation + " "),
    "Blank": frozenset(" \t"), "Space": frozenset(" \t\n\x0b\f\r"),
    "Cntrl": frozenset([*map(chr, range(32)), "\x7f"]),
    "IsAlphabetic": frozenset(string.ascii_letters), "IsDigit": frozenset(string.digits),
    "IsLetter": frozenset(string.ascii_letters), "IsLatin": frozenset(string.ascii_letters),
}  # fmt: skip


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a Java expression for entire topic names (`fullmatch`).

    Raises:
        InvalidRequestError: Python can't express the pattern. The message names the construct.
    """
    try:
        return re.compile(_Translation(pattern).whole(), re.ASCII)
    except (re.error, OverflowError) as error:
        raise InvalidRequestError(f"subscribePattern={pattern}: {error}") from error


class _Translation:
    """A single pass over an expression. `_at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._caseless = re.search(r"\(\?[a-zA-Z]*i", text) is not None  # anywhere in the pattern
        self._refers = False  # whether there is a back-reference

    def whole(self) -> str:
        """Return the Python expression."""
        made = self._alternatives()
        if self._at < len(self._text):
            self._refuse("a ) without its (")
        if self._refers and re.search(r"[*+?}]\+|\(\?>", made):
            self._refuse("a reference beside a possessive quantifier")  # Python forgets too little
        return made

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidRequestError(
            f"subscribePattern={self._text}: {what} is not supported, though Java may accept it; "
            "write the expression without it, or list the topics with subscribe"
        )

    def _next(self, count: int = 1) -> str:
        found = self._text[self._at : self._at + count]
        if len(found) < count:
            self._refuse("its end, where something is missing,")
        self._at += count
        return found

    def _sees(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    # --- groups ----------------------------------------------------------------------------------

    def _alternatives(self) -> str:
        """Translate up to the end of the group.

        Flags that are set within the group apply up to the group's end, in all branches.
        """
        made, flags = [], ""
        while self._at < len(self._text) and not self._sees(")"):
            char = self._next()
            if char == "|":
                made.append(")" * bool(flags) + "|" + (f"(?{flags}:" if flags else ""))
            elif char == "(":
                piece, new = self._group()
                made.append(piece)
                if new:
                    made.append(")" * bool(flags) + f"(?{new}:")
                    flags = new
            else:
                made.append(self._one(char))
        return "".join(made) + ")" * bool(flags)

    def _group(self) -> tuple[str, str]:
        """Translate a group.

        Returns the translated group, and the flags that apply after the group in Python's syntax.
        """
        opening = "("
        if self._sees("?"):
            named = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>").match(self._text, self._at)
            kind = re.compile(r"\?(?:[:=!>]|<=|<!)").match(self._text, self._at)
            flags = re.compile(r"\?([a-zA-Z]*)(-[a-zA-Z]*)?([:)])").match(self._text, self._at)
            if named:
                opening, self._at = f"(?P<{named[1]}>", named.end()
            elif kind:
                opening, self._at = f"({kind[0]}", kind.end()
            elif flags:
                self._at = flags.end()
                new = self._flags(flags[1], flags[2] or "")
                if flags[3] == ")":
                    return "" if new else "(?:)", new  # so that nothing else is repeated
                opening = f"(?{new}:"
            else:
                self._refuse(f"the group ({self._text[self._at : self._at + 3]}")
        inner = self._alternatives()
        if self._next() != ")":  # pragma: no cover - `_alternatives` ends there or at the end
            self._refuse("an open group")
        return f"{opening}{inner})", ""

    def _flags(self, on: str, off: str) -> str:
        for flag in (on + off).replace("-", ""):
            if flag not in _FLAGS:
                self._refuse(f"the flag {flag}")
        if "i" in off:
            return "-i"
        return "i" if "i" in on else ""

    # --- single characters -----------------------------------------------------------------------

    def _one(self, char: str) -> str:
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char == "{":
            repeat = re.compile(r"[0-9]+(,[0-9]*)?}").match(self._text, self._at)
            if repeat is None:
                self._refuse("a { that is no repetition")
            self._at = repeat.end()
            return "{" + repeat[0]
        return char if char in ".^$*+?" else re.escape(char)

    def _escape(self) -> str:
        char = self._next()
        if char == "Q":
            end = self._text.find("\\E", self._at)
            text = self._text[self._at :] if end < 0 else self._text[self._at : end]
            self._at = len(self._text) if end < 0 else end + 2
            return re.escape(text)
        if char in "pP":
            return _written(self._property(char == "P"))
        if char in "dDwWsShHvV":
            return _written(self._short(char))
        if char in "bBA":
            return "\\" + char
        if char in "zZ":
            return "\\Z"
        if char == "k":
            name = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>").match(self._text, self._at)
            if name is None:
                self._refuse("\\k without a name")
            self._at, self._refers = name.end(), True
            return f"(?P={name[1]})"
        if char in "123456789":
            if self._text[self._at : self._at + 1].isdecimal():
                self._refuse(f"the reference \\{char}{self._text[self._at]}")
            self._refers = True
            return f"(?:\\{char})"
        return re.escape(self._literal(char))

    def _literal(self, char: str) -> str:
        """Return the character that an escape sequence means."""
        if char in _CONTROL:
            return _CONTROL[char]
        if char in "xu":
            digits = re.compile(r"{([0-9a-fA-F]+)}" if self._sees("{") else (
                r"([0-9a-fA-F]{2})" if char == "x" else r"([0-9a-fA-F]{4})"
            )).match(self._text, self._at)  # fmt: skip
            if digits is None or (char == "u" and self._sees("{")) or int(digits[1], 16) > 0x10FFFF:
                self._refuse(f"\\{char} without its digits")
            self._at = digits.end()
            return chr(int(digits[1], 16))
        if char in _ASCII and char.isalnum():
            self._refuse(f"\\{char}")
        return char

    def _short(self, char: str) -> frozenset[str]:
        held = _SHORT[char.lower()]
        return _ASCII - held if char.isupper() else held

    def _property(self, negated: bool) -> frozenset[str]:
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            if end < 0:
                self._refuse("\\p{ without }")
            name = self._text[self._at : end]
            self._at = end + 1
        plain = name.removeprefix("general_category=").removeprefix("gc=")
        if self._caseless and plain.removeprefix("Is") in _CASED:
            self._refuse(f"\\p{{{name}}} under (?i)")
        held = _POSIX.get(name) or _of_category(plain.removeprefix("Is"))
        if held is None:
            self._refuse(f"\\p{{{name}}}")
        return _ASCII - held if negated else held

    # --- classes ---------------------------------------------------------------------------------

    def _class(self) -> str:
        """Translate a character class, from behind the [."""
        negated = self._sees("^")
        if negated:
            self._at += 1
        held = self._members()
        return f"(?:{_written(held, negated=True)})" if negated else _written(held)

    def _members(self) -> frozenset[str]:
        """Return the characters up to the ], including unions and && intersections."""
        held: frozenset[str] | None = None
        union: frozenset[str] = frozenset()
        empty = True
        while True:
            if self._sees("&&"):
                if empty or self._caseless:
                    self._refuse("&& under (?i)" if self._caseless else "&& with nothing before it")
                self._at += 2
                if self._sees("&"):
                    self._refuse("&&&")
                held = union if held is None else held & union
                union, empty = frozenset(), True
                continue
            char = self._next()
            if char == "]" and not empty:
                return union if held is None else held & union
            if char == "]" and held is not None:
                self._refuse("&& with nothing behind it")
            union |= self._member(char)
            empty = False

    def _member(self, char: str) -> frozenset[str]:
        if char == "[":
            negated = self._sees("^")
            if negated:
                if self._caseless:
                    self._refuse("a negated class within another under (?i)")
                self._at += 1
            held = self._members()
            return _ASCII - held if negated else held
        if char == "\\":
            char = self._next()
            if char in "pP":
                return self._property(char == "P")
            if char in "dDwWsShHvV":
                return self._short(char)
            if char in "QEbBAzZGRXk0123456789":
                self._refuse(f"\\{char} in a class")
            char = self._literal(char)
        if self._sees("-") and not self._sees("-]") and not self._sees("-["):
            self._at += 1
            last = self._next()
            if last == "\\":
                last = self._next()
                if last in "pPdDwWsShHvVQEbBAzZGRXk0123456789":
                    self._refuse(f"a range up to \\{last}")
                last = self._literal(last)
            if ord(last) < ord(char):
                self._refuse(f"the range {char}-{last}")
            return frozenset(map(chr, range(ord(char), min(ord(last), 127) + 1)))
        return frozenset(char)


def _of_category(name: str) -> frozenset[str] | None:
    """Return the characters of a general category, such as L or Lu; None for an unknown name."""
    kinds: Callable[[str], str] = unicodedata.category
    known = {kinds(chr(number)) for number in range(0x3000)} | {"Co", "Cs", "Cn"}
    if not any(category == name or (len(name) == 1 and category[0] == name) for category in known):
        return None
    return frozenset(char for char in _ASCII if kinds(char).startswith(name))


def _written(held: frozenset[str], *, negated: bool = False) -> str:
    """Return a Python character class of the given characters, restricted to topic names."""
    inner = "".join(re.escape(char) for char in sorted(held & _ALPHABET))
    if not inner:
        return "." if negated else "(?!)"
    return f"[{'^' * negated}{inner}]"
