"""Libraries that only parts of the package need: what to install where one is missing."""

import contextlib
from collections.abc import Iterator
from typing import Final

_EXTRAS: Final = {
    "click": "cli", "rich": "cli", "prometheus_client": "metrics", "fsspec": "tiered",
    "cryptography": "encryption", "confluent_kafka": "kafka",
    "kio": "endpoint", "scramp": "endpoint",
    "pyspark": "spark", "py4j": "spark", "pandas": "spark",
}  # fmt: skip


def hint(error: ModuleNotFoundError) -> str | None:
    """Return what to install for the library that an import missed; None if it is no extra's."""
    library = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(library)
    return extra and f"{library} isn't installed here; run: pip install 'sparklog[{extra}]'"


@contextlib.contextmanager
def needed(refusal: type[Exception] = ModuleNotFoundError) -> Iterator[None]:
    """Raise `refusal` with the hint for an extra's library that an import within this misses."""
    try:
        yield
    except ModuleNotFoundError as error:
        said = hint(error)
        if said is None:
            raise
        found = refusal(said)
        if isinstance(found, ModuleNotFoundError):
            found.name = error.name
        raise found from None
