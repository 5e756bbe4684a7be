"""How much clients may take: rules, what was taken, and for how long they are not read."""
