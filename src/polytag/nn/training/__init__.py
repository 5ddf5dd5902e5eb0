"""Training of networks: loop, batches, steps, losses, checkpoints."""
