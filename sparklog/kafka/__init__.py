"""Kafka's protocol: any client of Kafka's reads and writes a log without a broker.

    with sparklog.open("/data/log", "rw") as log, Endpoint(log) as endpoint:
        Consumer({"bootstrap.servers": endpoint.bootstrap_servers, ...})

- `endpoint`: listens, holds the connections; `connection`: frames, the order of answers
- `messages`: requests and responses, by kio's schemas; `codec`: how a schema is read and written
- `apis`: what serving an API is; `broker`: what the APIs share; `options`
- `partitions`: topics and watermarks in memory; `topic_ids`; `error_codes`
- `producing`: Produce, InitProducerId; `committer`: all that waits in one commit
- `metadata`: ApiVersions, Metadata, DescribeCluster; `topic_partitions`
- `topic_admin`, `record_deletion`: topics made, deleted, grown, cut; `configs`, `topic_configs`;
  `request_timeout`: how long a client waits for one; `api_errors`: why there is none
- `log_dirs`; `replicas`: elections and reassignments; `producer_states`; `unsupported_apis`: what a
  cluster has and a log hasn't
- `partition_cache`: leader epochs and last stable offsets, for as long as they hold
- `offset_listing`: ListOffsets, OffsetForLeaderEpoch
- `fetching`: Fetch; `fetched_partitions`: what is read for it; `timing_wheel`: how clients wait;
  `response_memory`: what answers may hold; `read_buffers`: memory that is read into again
- `groups`: consumer groups, their members and committed offsets
- `scram_credentials`: what clients are shown of users
- `security`: who may connect; `listeners`: from where; `tls_handshake`; `users`, `credentials`,
  `sasl`, `authentication`; `authorization`: what they may do; `quotas`; `network_metrics`

It is served on one thread, and a few more read and write the log. How it fits in: docs/kafka.md.
"""

from sparklog.kafka.endpoint import Endpoint

__all__ = ["Endpoint"]
