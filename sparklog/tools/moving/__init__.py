"""Topics to and from Kafka, Parquet, Delta and log dirs, with the offsets they have."""
