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
    "--files", required=True,
    help="Read these files of partitions, several joined by ','.",
)  # fmt: skip
@click.option("--print-data-log", is_flag=True, help="Print keys and values as well.")
@click.option("--deep-iteration", is_flag=True, help="Print a line for each record.")
@click.option(
    "--skip-record-metadata", is_flag=True,
    help="Print only the key and value of records.",
)  # fmt: skip
@click.option("--verify-index-only", is_flag=True, help="Only compare indexes with their log.")
@click.option(
    "--index-sanity-check", is_flag=True,
    help="Check what a broker checks when it starts.",
)  # fmt: skip
@click.option(
    "--max-message-size", default=MAX_MESSAGE_SIZE, show_default=True, type=click.IntRange(0),
    help="Accept batches of up to this many bytes when an index is verified.",
)  # fmt: skip
@click.option(
    "--max-bytes", default=SIZE_MAX, type=click.IntRange(0, SIZE_MAX),
    help="Read at most this many bytes of a log.",
)  # fmt: skip
@click.option(
    "--key-decoder-class", is_flag=False, flag_value=STRING,
    help="Decode keys with StringDecoder (the default), LongDecoder or IntegerDecoder.",
)  # fmt: skip
@click.option(
    "--value-decoder-class", is_flag=False, flag_value=STRING,
    help="Decode values with one of these."
)
@click.option(
    "--remote-log-metadata-decoder", is_flag=True,
    help="Decode values of __remote_log_metadata, which describe remote segments.",
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
    """Print batches, records, index entries and producers line for line as kafka-dump-log does.

    The command reads the .log, .index, .timeindex, .txnindex and .snapshot files of brokers and of
    sparklog.
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
        raise click.BadParameter("want at least one file", param_hint="'--files'")
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
