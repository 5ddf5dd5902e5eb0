"""The training loop, batches, encoders and losses of the neural models; the only part that needs torch."""
