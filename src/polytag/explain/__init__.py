"""Why a label: what the words of a text contribute, what else a model knows about it, and the nearest documents."""
