"""From vectors to label sequences: decoders, beam search, conditional random fields."""
