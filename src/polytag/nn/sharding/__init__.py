"""Networks and optimisers that several processes divide among them."""
