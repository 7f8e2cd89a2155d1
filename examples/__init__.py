"""Short scripts a person reads top to bottom, and the small trained checkpoints they use."""
