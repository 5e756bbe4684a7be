"""Connections to one broker, to several, or to a Kafka cluster."""
