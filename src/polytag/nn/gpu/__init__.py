"""What makes networks faster on a GPU: kernels in Triton, compiled layers, states in half precision."""
