"""`sparklog dump-log`: prints the files of a partition, like kafka-dump-log."""

import json
import sys

import click

from sparklog.cli.exit_codes import EXIT_FAILED, EXIT_OK
from sparklog.cli.kafka_tools import KafkaTool
from sparklog.cli.terminal import visible_bytes
from sparklog.tools.dump.dump_log import MAX_MESSAGE_SIZE, Dump, DumpOptions, Output
from sparklog.tools.dump.json_lines import documents
from sparklog.tools.dump.log import SIZE_MAX
from sparklog.tools.dump.text import STRING, check_decoder

_ELSEWHERE = ("offsets", "transaction-log", "cluster-metadata", "share-group-state")


def _refuse(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        raise click.BadParameter(
            "internal topics of Kafka brokers can't be decoded here; use kafka-dump-log",
            ctx=context, param=option,
        )  # fmt: skip


@click.command("dump-log", cls=KafkaTool)
@click.option(
    "--files", metavar="FILE,...", required=True,
    help="Read these files of partitions, joined by commas.",
)  # fmt: skip
@click.option(
    "--print-data-log", is_flag=True,
    help="Print a line for each record, with key and value.",
)  # fmt: skip
@click.option(
    "--deep-iteration", is_flag=True,
    help="Print a line for each record, without key and value.",
)  # fmt: skip
@click.option(
    "--skip-record-metadata", is_flag=True,
    help="Print only the key and value of each record. Applies to --print-data-log.",
)  # fmt: skip
@click.option(
    "--verify-index-only", is_flag=True,
    help="Compare index files with their log, and print no entries.",
)  # fmt: skip
@click.option(
    "--index-sanity-check", is_flag=True,
    help="Check index files as a broker does when it starts, and print no entries.",
)  # fmt: skip
@click.option(
    "--max-message-size", default=MAX_MESSAGE_SIZE, show_default=True, type=click.IntRange(0),
    metavar="BYTES",
    help="Accept record batches of up to this many bytes when an index is compared with its log.",
)  # fmt: skip
@click.option(
    "--max-bytes", default=SIZE_MAX, show_default=True, type=click.IntRange(0, SIZE_MAX),
    metavar="BYTES", help="Read at most this many bytes of each .log file.",
)  # fmt: skip
@click.option(
    "--key-decoder-class", is_flag=False, flag_value=STRING, metavar="[CLASS]",
    help="Decode keys with StringDecoder (the default), LongDecoder or IntegerDecoder. Implies "
    "--print-data-log.",
)  # fmt: skip
@click.option(
    "--value-decoder-class", is_flag=False, flag_value=STRING, metavar="[CLASS]",
    help="Decode values with StringDecoder (the default), LongDecoder or IntegerDecoder. Implies "
    "--print-data-log.",
)  # fmt: skip
@click.option(
    "--remote-log-metadata-decoder", is_flag=True,
    help="Decode the values of the topic __remote_log_metadata, which describe remote segments. "
    "Implies --print-data-log.",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print a JSON object per line instead of text.",
)  # fmt: skip
def dump_log(
    files: str,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
    max_message_size: int,
    max_bytes: int,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
    remote_log_metadata_decoder: bool,
    as_json: bool,
) -> int:
    """Print the contents of segment, index and producer snapshot files, like kafka-dump-log.

    The command reads .log, .index, .timeindex, .txnindex and .snapshot files that sparklog or a
    Kafka broker wrote. By default it prints a line for each record batch or entry. The exit code is
    1 if a file is damaged.
    """
    options = DumpOptions(
        # A decoder option implies printing the data that it decodes.
        print_data_log=print_data_log
        or remote_log_metadata_decoder
        or bool(key_decoder_class or value_decoder_class),
        deep_iteration=deep_iteration,
        skip_record_metadata=skip_record_metadata,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        max_message_size=max_message_size,
        max_bytes=max_bytes,
        key_decoder=check_decoder(key_decoder_class or STRING),
        value_decoder=check_decoder(value_decoder_class or STRING),
        remote_log_metadata_decoder=remote_log_metadata_decoder,
    )
    names = [name for name in files.split(",") if name]
    if not names:
        raise click.BadParameter("the option must name at least one file", param_hint="'--files'")
    dump = Dump(names, options)
    dump.check()
    out, err = sys.stdout, sys.stderr
    try:
        for each in documents(dump) if as_json else dump.lines():
            if isinstance(each, Output):
                to, raw = err if each.is_error else out, each.text
            else:
                to, raw = out, json.dumps(each, ensure_ascii=False).encode() + b"\n"
            to.buffer.write(visible_bytes(raw, to))
    finally:
        out.buffer.flush()  # also the output before an error
        err.buffer.flush()
    return EXIT_FAILED if dump.damaged else EXIT_OK


for _name in _ELSEWHERE:
    dump_log.params.append(
        click.Option([f"--{_name}-decoder"], is_flag=True, hidden=True, expose_value=False,
                     callback=_refuse)
    )  # fmt: skip
