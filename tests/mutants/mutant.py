"""What a mutant is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A one-line bug: `new` in the place of `old`, which stands in `file` exactly once.

    `tests`: test files or ids, of which at least one must fail; the quickest that judge it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Return the file's text with the bug. Raises ValueError unless `old` is there once."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: {self.file} has {self.old!r} {found} times, want 1")
        return text.replace(self.old, self.new)


def mutant(name: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    """Make one; `file` lies in sparklog/, `tests` in tests/."""
    return Mutant(name, f"sparklog/{file}", old, new, tuple(f"tests/{test}" for test in tests))
