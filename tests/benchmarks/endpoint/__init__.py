"""The Kafka endpoint beside a real broker: `make bench BENCH_ARGS=kafka`.

- `servers`: the endpoint and the broker, a process each, and what they cost
- `wire`: requests by hand, for what no client does: to read without decoding, idly, or slowly
- `fetching`, `producing`: throughput, by turns with the broker; `idling`, `holding`: many clients
- `FetchSpeed.java`: a consumer in Java that counts
"""
