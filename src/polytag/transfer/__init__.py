"""What a model learns from another model, and an encoder from texts without labels."""
