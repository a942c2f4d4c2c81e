"""An endpoint for Kafka's protocol: Kafka clients read and write a log without a broker.

    with sparklog.open("/data/log", "rw") as log, Endpoint(log) as endpoint:
        Consumer({"bootstrap.servers": endpoint.bootstrap_servers, ...})

- `endpoint`: the server and its connections; `connection`: frames and the order of responses
- `messages`: requests and responses by kio's schemas; `codec`: reads and writes them
- `apis`: handlers and versions; `options`
- `broker`: state that all APIs share, and changes with a timeout
- `partitions`: topics and watermarks in memory
- `producing`: Produce, InitProducerId; `committer`: group commit of waiting requests
- `metadata`: ApiVersions, Metadata, DescribeCluster; `topic_partitions`
- `topic_admin`, `record_deletion`: creating, deleting and growing topics, DeleteRecords
- `configs`, `topic_configs`; `api_errors`: error responses and Kafka's error codes
- `log_dirs`; `replicas`: elections and reassignments; `producer_states`
- `unsupported_apis`: ACLs and client quotas, which a log does not have
- `partition_cache`: cached leader epochs and last stable offsets
- `offset_listing`: ListOffsets, OffsetForLeaderEpoch
- `fetching`: Fetch; `fetched_partitions`: reads for it; `timers`: deadlines and timeouts
- `response_memory`: memory limit of responses, and reused read buffers
- `groups`: consumer groups, their members and committed offsets
- `security`: TLS, SASL and rights of an endpoint; `listeners`: addresses; `tls_handshake`
- `users`, `credentials`, `scram_credentials`, `sasl`, `authentication`, `authorization`
- `quotas`: connection and memory limits; `network_metrics`

A thread runs the event loop, and a few more threads read and write the log. Overview:
docs/kafka.md.
"""

from sparklog.kafka.endpoint import Endpoint

__all__ = ["Endpoint"]
