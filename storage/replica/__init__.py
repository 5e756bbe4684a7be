"""A log that other brokers copy, or that copies another: leading, copying, following."""
