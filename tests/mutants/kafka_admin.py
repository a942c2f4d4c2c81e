"""Bugs in what the endpoint does for admin clients: topics, configs, records deleted."""

from tests.mutants.mutant import mutant

ADMIN = "kafka/test_topic_admin.py"
CONFIGS = "kafka/test_configs.py"
DELETION = "kafka/test_record_deletion.py"

MUTANTS = (
    mutant(
        "validate-only-makes-topics",
        "kafka/topic_admin.py",
        "if not validate_only:",
        "if topic:",
        f"{ADMIN}::test_validate_only_changes_nothing",
    ),
    mutant(
        "topic-named-twice-is-made",
        "kafka/topic_admin.py",
        "Counter(topic.name for topic in body.topics)\n        known = self._log.topics()\n"
        "        is_too_much",
        "Counter({topic.name for topic in body.topics})\n        known = self._log.topics()\n"
        "        is_too_much",
        f"{ADMIN}::test_one_that_is_refused_keeps_none_of_the_others",
    ),
    mutant(
        "any-number-of-partitions-is-made",
        "kafka/topic_admin.py",
        "if is_too_much:",
        "if is_too_much and not times:",
        f"{ADMIN}::test_the_partitions_of_a_request_are_counted_together",
    ),
    mutant(
        "any-number-of-topics-is-made-for-metadata",
        "kafka/topic_admin.py",
        "                if left < 0:\n",
        "                if name is None:\n",
        f"{ADMIN}::test_the_partitions_of_a_request_are_counted_together",
    ),
    mutant(
        "replicas-that-nobody-keeps-are-promised",
        "kafka/topic_admin.py",
        "if topic.replication_factor > 1:",
        "if topic.replication_factor > 9:",
        f"{ADMIN}::test_what_is_refused_says_why",
    ),
    mutant(
        "assignment-to-brokers-that-are-not-there",
        "kafka/topic_admin.py",
        "        elif others:\n",
        "        elif len(others) > 9:\n",
        f"{ADMIN}::test_what_is_refused_says_why",
    ),
    mutant(
        "another-topic-of-that-name-is-deleted",
        "kafka/topic_admin.py",
        "self._log.delete_topic(found, topic_id=info.id or None)",
        "self._log.delete_topic(found)",
        f"{ADMIN}::test_a_topic_that_was_made_again_is_another_one",
    ),
    mutant(
        "topic-deleted-by-its-name-and-its-id",
        "kafka/topic_admin.py",
        "if meant[_name_of((name, topic_id), ids)] > 1:",
        "if meant[_name_of((name, topic_id), ids)] > 2:",
        f"{ADMIN}::test_what_is_ambiguous_stays",
    ),
    mutant(
        "ambiguous-topic-is-deleted",
        "kafka/topic_admin.py",
        "if name is not None and topic_id is not None:",
        "if name is None and topic_id is None:",
        f"{ADMIN}::test_what_is_ambiguous_stays",
    ),
    mutant(
        "validate-only-adds-partitions",
        "kafka/topic_admin.py",
        "if not body.validate_only:",
        "if body.topics:",
        f"{ADMIN}::test_partitions_are_added",
    ),
    mutant(
        "partitions-with-too-few-assignments",
        "kafka/topic_admin.py",
        "if len(topic.assignments) != additional:",
        "if len(topic.assignments) > additional:",
        f"{ADMIN}::test_partitions_are_added",
    ),
    mutant(
        "read-only-log-fails-instead-of-refusing",
        "kafka/topic_admin.py",
        "        if not self._is_writable:\n",
        "        if self._is_writable is None:\n",
        f"{ADMIN}::test_a_log_that_is_open_for_reading_is_left_alone",
    ),
    mutant(
        "records-of-a-compacted-topic-deleted",
        "kafka/record_deletion.py",
        "return None if info.config.delete else ErrorCode.policy_violation",
        "return None",
        f"{DELETION}::test_a_compacted_topic_keeps_its_records_as_in_kafka",
    ),
    mutant(
        "one-partition-keeps-the-others-records",
        "kafka/record_deletion.py",
        "if len(rest) == 1:",
        "if len(rest) >= 1:",
        f"{DELETION}::test_each_partition_is_for_itself",
    ),
    mutant(
        "validate-only-changes-configs",
        "kafka/configs.py",
        "if not validate_only:",
        "if info:",
        f"{CONFIGS}::test_a_change_of_one_config",
    ),
    mutant(
        "alter-configs-keeps-what-it-does-not-name",
        "kafka/topic_configs.py",
        "return {**dict.fromkeys(config.to_dict()), **values}",
        "return dict(values)",
        f"{CONFIGS}::test_configs_that_are_replaced",
    ),
    mutant(
        "appended-config-replaces-the-list",
        "kafka/topic_configs.py",
        'return ",".join(dict.fromkeys([*held, *given]))',
        "return value",
        f"{CONFIGS}::test_a_change_of_one_config",
    ),
    mutant(
        "subtracted-config-takes-the-whole-list",
        "kafka/topic_configs.py",
        "part for part in held if part not in given",
        "part for part in given if part not in held",
        f"{CONFIGS}::test_parts_of_lists_keep_their_order",
    ),
    mutant(
        "one-config-said-twice",
        "kafka/configs.py",
        "if any(number > 1 for number in names.values()):",
        "if any(number > 2 for number in names.values()):",
        f"{CONFIGS}::test_a_resources_changes_come_together_or_not_at_all",
    ),
    mutant(
        "one-topic-configured-twice",
        "kafka/configs.py",
        "if times[resource.resource_type, resource.resource_name] > 1:",
        "if times[resource.resource_type, resource.resource_name] > 2:",
        f"{CONFIGS}::test_a_resources_changes_come_together_or_not_at_all",
    ),
    mutant(
        "options-of-the-endpoint-seem-to-change",
        "kafka/configs.py",
        "        if not wanted:\n            return\n",
        "        if name is not None:\n            return\n",
        f"{CONFIGS}::test_nothing_of_the_endpoints_own_is_changed",
    ),
)
