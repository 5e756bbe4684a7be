"""The modules that can be compiled: walks over bytes, and bytes to columns and back."""
