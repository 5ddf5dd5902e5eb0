"""Labels in a network: in its input, its attention and its auxiliary tasks."""
