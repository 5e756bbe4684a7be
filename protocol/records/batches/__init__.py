"""Record batches (format v2)."""
