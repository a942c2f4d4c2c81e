"""Configs of topics and of the endpoint: described, altered and listed.

DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources. Clients can read the
endpoint's configs but not change them. Source: ConfigHelper, ConfigAdminManager,
ConfigurationControlManager (Kafka 4.1).
"""

import enum
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from sparklog.config import KEYS, NEW_TOPICS, TopicConfig
from sparklog.configdef import Key, format_value
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.kafka.api_errors import REQUEST_ERRORS, ApiError, code_and_message, read_only_error
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker, run_with_timeout
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.kafka.options import ENDPOINT_KEYS, EndpointOptions
from sparklog.kafka.topic_configs import (
    Alteration,
    ConfigSource,
    Entry,
    Operation,
    altering,
    config_type,
    replacing,
    topic_entries,
)
from sparklog.log.admin import altered_config
from sparklog.log.log import Log, home_of
from sparklog.storage.view import TopicInfo

Answer = dict[str, Any]
_SECRET: Final = re.compile(r"password|secret|credential|jaas|scram|users", re.IGNORECASE)


class ResourceType(enum.IntEnum):
    """Types of resources that have configs. Source: ConfigResource.Type."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def apis(broker: Broker) -> dict[Api, Served]:
    configs = Configs(broker.log, broker.options, is_writable=broker.is_writable)

    async def describe(request: Request) -> Response:
        return await broker.run(configs.describe, request.body)

    async def alter(request: Request) -> Response:
        return await run_with_timeout(broker, request, configs.alter, _no_timeout)

    async def alter_incrementally(request: Request) -> Response:
        return await run_with_timeout(broker, request, configs.alter_incrementally, _no_timeout)

    async def resources(request: Request) -> Response:
        wanted = getattr(request.body, "resource_types", None)
        return await broker.run(configs.resources, wanted)

    return {
        Api.DESCRIBE_CONFIGS: Served((1, 4), describe),
        Api.ALTER_CONFIGS: Served((0, 2), alter),
        Api.INCREMENTAL_ALTER_CONFIGS: Served((0, 1), alter_incrementally),
        Api.LIST_CONFIG_RESOURCES: Served((0, 1), resources),
    }


def _no_timeout(_: Any) -> Response:
    raise AssertionError("these requests have no timeout")


class Configs:
    """The configs of a log's topics and of the node. Methods block."""

    def __init__(self, log: Log, options: EndpointOptions, *, is_writable: bool) -> None:
        self._log, self._options, self._is_writable = log, options, is_writable

    # --- describe ----------------------------------------------------------------------------

    def describe(self, body: Any) -> Response:
        """Return the requested configs, by default all, of the requested resources."""
        topics = self._topics(body.resources)
        results = []
        for resource in body.resources:
            answer = _answer(resource)
            try:
                entries = self._entries(resource, topics)
            except REQUEST_ERRORS as error:
                code, message = code_and_message(error)
                answer |= {"error_code": code, "error_message": message, "configs": []}
            else:
                wanted = resource.configuration_keys
                answer["configs"] = [
                    _shown(entry, body) for entry in entries
                    if not wanted or entry["name"] in wanted
                ]  # fmt: skip
            results.append(answer)
        return {"results": results}

    def _topics(self, resources: Iterable[Any]) -> Mapping[str, TopicInfo]:
        """Return the log's topics if any of the resources is a topic, otherwise no topics."""
        if any(resource.resource_type == ResourceType.TOPIC for resource in resources):
            return self._log.topics()
        return {}

    def _entries(self, resource: Any, topics: Mapping[str, TopicInfo]) -> list[Entry]:
        name = resource.resource_name
        match resource.resource_type:
            case ResourceType.TOPIC:
                return topic_entries(_topic(topics, name).config, is_writable=self._is_writable)
            case ResourceType.BROKER:
                if not name:
                    return []  # Kafka's cluster-wide dynamic defaults, which do not exist here
                self._check_node(name)
                return self._node_entries()
            case ResourceType.BROKER_LOGGER:
                self._check_node(name)
                return []
            case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
                if not name:
                    raise ApiError(ErrorCode.invalid_request, "The name must not be empty.")
                return []
            case unknown:
                raise ApiError(ErrorCode.invalid_request, f"Unexpected resource type {unknown}")

    def _check_node(self, name: str) -> None:
        """Raise ApiError unless `name` is the id of the single node. Source: ConfigHelper."""
        try:
            node = int(name)
        except ValueError:
            raise ApiError(
                ErrorCode.invalid_request, f"Broker id must be an integer, but it is: {name}"
            ) from None
        if node != self._options.node_id:
            raise ApiError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {self._options.node_id} or empty string, but "
                f"received {name}",
            )

    def _node_entries(self) -> list[Entry]:
        """Return the endpoint's options and defaults of new topics, by a broker's config names."""
        # As in a broker, DescribeConfigs shows no passwords and no paths of users' files.
        secret = {field.name for field in fields(EndpointOptions) if not field.repr}
        entries = [
            _broker_entry(key.name, key, getattr(self._options, key.field), key.field in secret)
            for key in ENDPOINT_KEYS.values()
        ]
        defaults = home_of(self._log).commits.topic_defaults if self._is_writable else NEW_TOPICS
        entries += [
            _broker_entry(key.also[0][0], key, getattr(defaults, key.field), False)
            for key in KEYS.values() if key.also
        ]
        entries.append(
            {
                "name": "log.dirs", "value": self._log.path, "read_only": True,
                "config_source": ConfigSource.STATIC_BROKER, "is_sensitive": False,
                "synonyms": [], "config_type": config_type(ENDPOINT_KEYS["node.id"]),
                "documentation": "Location of the log: its log dirs, or the URL of its bucket.",
            }
        )  # fmt: skip
        return sorted(entries, key=lambda entry: str(entry["name"]))

    # --- alter -------------------------------------------------------------------------------

    def alter(self, body: Any) -> Response:
        """Set exactly the given configs of resources; all others return to their defaults."""

        def values(resource: Any) -> dict[str, str | None]:
            return {config.name: config.value for config in resource.configs}

        return self._altered(
            body,
            lambda resource, config: replacing(config, values(resource)),
            values,
        )

    def alter_incrementally(self, body: Any) -> Response:
        """Set, delete, append to and subtract from configs of resources."""

        def alterations(resource: Any) -> list[Alteration]:
            return [
                Alteration(each.name, each.config_operation, each.value)
                for each in resource.configs
            ]

        return self._altered(
            body,
            lambda resource, config: altering(config, alterations(resource)),
            lambda resource: {
                each.name: None if each.operation == Operation.DELETE else each.value or ""
                for each in alterations(resource)
            },
        )

    def _altered(
        self,
        body: Any,
        changes_of: Callable[[Any, TopicConfig], Mapping[str, str | None]],
        values_of: Callable[[Any], Mapping[str, str | None]],
    ) -> Response:
        """Alter each resource. All changes of a resource are applied, or none."""
        times = Counter((each.resource_type, each.resource_name) for each in body.resources)
        topics = self._topics(body.resources)
        answers = []
        for resource in body.resources:
            answer = _answer(resource)
            try:
                if times[resource.resource_type, resource.resource_name] > 1:
                    raise ApiError(
                        ErrorCode.invalid_request, "Each resource must appear at most once."
                    )
                names = Counter(config.name for config in resource.configs)
                if any(number > 1 for number in names.values()):
                    raise ApiError(ErrorCode.invalid_request, "Error due to duplicate config keys")
                if resource.resource_type == ResourceType.TOPIC:
                    info = _topic(topics, resource.resource_name)
                    changes = changes_of(resource, info.config)
                    self._alter_topic(info, changes, validate_only=body.validate_only)
                else:
                    changes = values_of(resource)
                    self._refuse(resource, [n for n in changes if changes[n] is not None])
            except REQUEST_ERRORS as error:
                code, message = code_and_message(error)
                answer |= {"error_code": code, "error_message": message}
            answers.append(answer)
        return {"responses": answers}

    def _alter_topic(
        self, info: TopicInfo, changes: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        if not self._is_writable:
            raise read_only_error(self._log.path)
        try:
            defaults = home_of(self._log).commits.topic_defaults
            altered_config(info.name, info.config.to_dict(), changes, defaults)
            if not validate_only:
                self._log.alter_topic(info.name, config=changes)
        except UnknownTopicError:
            raise
        except InvalidRequestError as error:
            raise ApiError(ErrorCode.invalid_config, str(error)) from None

    def _refuse(self, resource: Any, wanted: Sequence[str]) -> None:
        """Raise ApiError for configs that only a broker lets clients set.

        Unsetting them is allowed.
        Source: DynamicBrokerConfig, "Cannot update these configs dynamically".
        """
        kind, name = resource.resource_type, resource.resource_name
        if kind not in list(ResourceType):
            raise ApiError(ErrorCode.invalid_request, f"Unknown resource type {kind}")
        if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name:
            self._check_node(name)
        if not wanted:
            return
        names = ", ".join(wanted)
        subject = "options" if kind == ResourceType.BROKER else "configs of this kind"
        raise ApiError(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: Set({names}). Clients can't "
            f"change the endpoint's {subject}: give options where it is started",
        )

    # --- list --------------------------------------------------------------------------------

    def resources(self, wanted: Sequence[int] | None) -> Response:
        """Return the resources that have configs, by type.

        `wanted`: the requested types. Version 0 has none and lists only client metrics. Source:
        KafkaApis.handleListConfigResources, KIP-1142.
        """
        if wanted is None:
            return {"error_code": ErrorCode.none, "config_resources": []}
        if not set(wanted) <= set(ResourceType):
            return {"error_code": ErrorCode.unsupported_version, "config_resources": []}
        kinds = set(wanted) or set(ResourceType)
        node = str(self._options.node_id)
        found = [
            (kind, node)
            for kind in (ResourceType.BROKER_LOGGER, ResourceType.BROKER) if kind in kinds
        ]  # fmt: skip
        if ResourceType.TOPIC in kinds:
            found += [(ResourceType.TOPIC, name) for name in self._log.topics()]
        resources = [{"resource_name": name, "resource_type": int(kind)} for kind, name in found]
        return {"error_code": ErrorCode.none, "config_resources": resources}


def _answer(resource: Any) -> Answer:
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def _shown(entry: Entry, body: Any) -> Entry:
    """Return an entry with only the requested parts."""
    return {
        **entry,
        "synonyms": entry["synonyms"] if body.include_synonyms else [],
        "documentation": (
            entry["documentation"] if getattr(body, "include_documentation", False) else None
        ),
    }


def _topic(topics: Mapping[str, TopicInfo], name: str) -> TopicInfo:
    if not name:
        raise ApiError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
    if name not in topics:
        raise ApiError(
            ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist."
        )
    return topics[name]


def _broker_entry(name: str, key: Key, value: Any, is_secret: bool) -> Entry:
    """Return an option of the endpoint as a config entry; secrets have no value, as in Kafka."""
    is_sensitive = is_secret or bool(_SECRET.search(name))
    text = None if is_sensitive or value is None else format_value(value)
    source = ConfigSource.DEFAULT if value == key.default else ConfigSource.STATIC_BROKER
    return {
        "name": name,
        "value": text,
        "read_only": True,
        "config_source": source,
        "is_sensitive": is_sensitive,
        "synonyms": [{"name": name, "value": text, "source": source}],
        "config_type": config_type(key),
        "documentation": key.doc,
    }
