"""What makes networks faster on a GPU: kernels in Triton and CUDA C++, compiled layers, states in half precision."""
