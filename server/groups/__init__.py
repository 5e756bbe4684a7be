"""Consumer groups: members, states, the coordinator and retention of positions."""
