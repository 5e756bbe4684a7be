"""The native encoding: msgpack."""
