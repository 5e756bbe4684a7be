"""How a client reaches a broker that is guarded: encryption, and who the client is."""
