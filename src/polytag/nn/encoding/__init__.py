"""From tokens to vectors: encoders, pretrained weights, inference."""
