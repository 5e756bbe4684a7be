"""The way to one broker, or to those of a Kafka cluster."""
