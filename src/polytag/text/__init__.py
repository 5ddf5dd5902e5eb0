"""From text to what models read: preparation, words, tf-idf, subword tokens."""
