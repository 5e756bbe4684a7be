"""Compression: gzip, snappy, lz4 and zstd in the forms that Kafka uses."""
