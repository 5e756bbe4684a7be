"""What guarding a broker costs."""
