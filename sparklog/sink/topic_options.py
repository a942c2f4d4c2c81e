"""Warn once about options that an existing topic ignores.

Options that describe a topic apply to topics that the sink creates. A sink never changes an
existing topic, which may have another owner; a command does that.
"""

import logging
from typing import Final

from sparklog.config import KEYS
from sparklog.configdef import format_value
from sparklog.lru_cache import LruCache
from sparklog.sink.options import SinkOptions
from sparklog.storage.view import TopicInfo

_LOGGER: Final = logging.getLogger("sparklog.sink")
_WARNED_MAX: Final = 1024
# By topic id: a topic that is created again under its name is another topic, with new configs.
_warned: LruCache[tuple[str, str], bool] = LruCache(_WARNED_MAX)  # (topic id, the warning)


def warn_of_ineffective(options: SinkOptions, topic: TopicInfo, path: str) -> None:
    """Log a warning about options that an existing topic ignores, once per topic and text.

    The warning contains the command that changes the topic.
    """
    text = ineffective_options(options, topic, path)
    if text is not None and _warned.get((topic.id, text)) is None:
        _warned.put((topic.id, text), True)
        _LOGGER.warning("%s", text)


def ineffective_options(options: SinkOptions, topic: TopicInfo, path: str) -> str | None:
    """Return a message about the options without effect on an existing topic, or None."""
    differences, commands = [], []
    configs = []
    for name in sorted(options.given & KEYS.keys()):
        wanted, actual = (_text(name, config) for config in (options.topic_config, topic.config))
        if wanted != actual:
            differences.append(f"{name}={wanted} (the topic has {actual})")
            configs.append(f"{name}={'[' + wanted + ']' if ',' in wanted else wanted}")
    codec, own = options.compression_type, topic.config.compression_type
    if "compression.type" in options.given and own != "producer" and own != codec:
        differences.append(f"compression.type={codec} (the topic has {own})")
        configs.append("compression.type=producer")
    if configs:
        commands.append(
            f"sparklog configs alter {path} --topic {topic.name} --add-config {','.join(configs)}"
        )
    if "partitions" in options.given and options.partitions != topic.partitions:
        differences.append(f"partitions={options.partitions} (it has {topic.partitions})")
        if options.partitions > topic.partitions:
            commands.append(
                f"sparklog topics alter {path} --topic {topic.name} "
                f"--partitions {options.partitions}"
            )
        else:
            commands.append("nothing: the number of partitions can't be reduced")
    if not differences:
        return None
    return (
        f"topic {topic.name} of {path} already existed, so these options of the sink have no "
        f"effect: {', '.join(differences)}. To change the topic: {'; '.join(commands)}"
    )


def _text(name: str, config: object) -> str:
    return format_value(getattr(config, KEYS[name].field))
