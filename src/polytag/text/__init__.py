"""From text to model inputs: preprocessing, words, tf-idf, subword tokens."""
