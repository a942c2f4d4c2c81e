"""Optional libraries, and the extra to install if a library is missing."""

import contextlib
from collections.abc import Iterator
from typing import Final

_EXTRAS: Final = {
    "click": "cli", "rich": "cli", "prometheus_client": "metrics", "fsspec": "tiered",
    "jinja2": "ui", "markupsafe": "ui", "starlette": "ui", "uvicorn": "ui",
    "anyio": "ui", "h11": "ui",
    "cryptography": "encryption", "confluent_kafka": "kafka",
    "kio": "endpoint", "scramp": "endpoint",
    "pyspark": "spark", "py4j": "spark", "pandas": "spark",
}  # fmt: skip


def hint(error: ModuleNotFoundError) -> str | None:
    """Return how to install the library that an import missed, if it is in an extra."""
    library = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(library)
    return extra and f"{library} isn't installed here; run: pip install 'sparklog[{extra}]'"


@contextlib.contextmanager
def needed(refusal: type[Exception] = ModuleNotFoundError) -> Iterator[None]:
    """Raise `refusal` with the hint if an import in this context misses a library of an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = hint(error)
        if message is None:
            raise
        error_of_extra = refusal(message)
        if isinstance(error_of_extra, ModuleNotFoundError):
            error_of_extra.name = error.name
        raise error_of_extra from None
