"""Real clients against a server that speaks Kafka: a broker, or our endpoint.

  client.py     what a client is asked, and what it shows
  libraries.py  confluent-kafka, kafka-python, aiokafka
  programs.py   franz-go, kafka-go, sarama (go/), kafkajs, @platformatic/kafka (node/), kcat
  java.py       Kafka's Java clients and tools (java/)
  golden.py     partitions that a broker wrote, and what its consumers read
  servers.py    what they talk to
"""
