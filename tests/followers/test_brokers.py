"""Brokers in processes of their own: one leads, others follow."""
