"""What strangers cost a guarded broker."""
