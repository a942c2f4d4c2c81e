"""A dump for scripts: a JSON object per batch, index entry or producer, with Kafka's names."""

from collections.abc import Iterator

import numpy as np

from sparklog.errors import InvalidRequestError
from sparklog.fs import File
from sparklog.tools.dump.batch import DumpedBatch
from sparklog.tools.dump.dump_log import Dump, DumpOptions, Output
from sparklog.tools.dump.index import base_of
from sparklog.tools.dump.log import SIZE_MAX, LogDump, batch_at, size_of, whole_batch
from sparklog.tools.dump.remote_log_metadata import remote_payload
from sparklog.tools.dump.text import batch_line, check_decoder, decode_one, java_text

Value = int | bool | str | None
Document = dict[str, "Value | list[str] | list[Document]"]
"""A JSON object with fields under Kafka's names."""


def documents(dump: Dump) -> Iterator[Document | Output]:
    """Yield an object per batch, entry or producer. Kafka's output on stderr remains text.

    Objects have the file and the fields of `Dump.lines`; a batch also has `records` if the options
    request records. The function is slower than text output, because records are processed
    individually. Raises the errors of `Dump.lines`.
    """
    for path in dump.files:
        if path.endswith(".log"):
            yield from _checked(dump, path)
            continue
        for out in dump.file_lines(path):
            if out.is_error:
                yield out
                continue
            for line in out.text.decode().splitlines():
                if not line.startswith("Dumping "):
                    yield {"file": path, **_fields(line, path)}
    yield from dump.mismatches()


def _checked(dump: Dump, path: str) -> Iterator[Document]:
    base_of(path)  # raises for a name without an offset
    try:
        yield from dump.in_log(path, lambda file, found: _log(file, path, dump.options, found))
    except FileNotFoundError:
        raise InvalidRequestError(f"{path} does not exist") from None


def _log(file: File, path: str, options: DumpOptions, found: LogDump) -> Iterator[Document]:
    size = size_of(file)
    end, at = min(size, options.max_bytes), 0
    deep = options.deep_iteration or options.print_data_log
    while whole := whole_batch(file, at, end):
        batch = batch_at(file, at, whole)
        found.damaged |= not batch.is_valid
        document = {"file": path, **_fields(batch_line(batch), path)}
        if deep:
            document["records"] = list(_records(batch, options, found))
        yield document
        at += whole
    if size > at and options.max_bytes == SIZE_MAX:
        found.damaged = True
        yield {"file": path, "invalidBytes": size - at}


def _records(batch: DumpedBatch, options: DumpOptions, found: LogDump) -> Iterator[Document]:
    key_decoder, value_decoder = map(check_decoder, (options.key_decoder, options.value_decoder))
    for record in batch.records():
        found.follow(np.array([record.offset], np.int64))
        document: Document = {
            "offset": record.offset,
            batch.time_type: record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": record.sequence,
            "headerKeys": [java_text(name) for name in record.header_keys],
        }
        if options.remote_log_metadata_decoder and not batch.is_control:
            document["payload"] = remote_payload(record.value, record.offset)
        elif options.print_data_log and not batch.is_control:
            document["key"] = _text(batch, record.key, key_decoder)
            document["payload"] = _text(batch, record.value, value_decoder)
        if batch.is_control:
            document |= _fields(batch.marker(record).strip(), batch.path)
        yield document


def _text(batch: DumpedBatch, data: bytes | None, decoder: str) -> str | None:
    try:
        return None if data is None else decode_one(data, decoder).decode()
    except ValueError as error:
        raise batch.damage(str(error)) from None


def _fields(line: str, path: str) -> Document:
    """Return the fields of a line "name: value name: value". Other lines become a single field."""
    words = line.removeprefix(f"{path} ").split()
    if not words[0].endswith(":") or len(words) % 2:
        return {"says": line}
    names = [word.removesuffix(":") for word in words[::2]]
    return dict(zip(names, map(_value, words[1::2]), strict=True))


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    text = text.removeprefix("OptionalLong[").removesuffix("]")
    if text == "OptionalLong.empty":
        return None
    return int(text) if text.lstrip("-").isdecimal() else text
