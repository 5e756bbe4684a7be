"""Every setting of the broker and its topics, declared once."""
