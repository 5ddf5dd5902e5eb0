"""How labels are generated as a sequence, and the sizes and attention of what generates them."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param

ORDERS = ("frequency", "topological", "random", "given")
TARGETS = ("sequence", "completion")
ATTENTIONS = ("additive", "dot")
QUERIES = ("new", "old")
FIRST_STATES = ("ends", "layers", "cls", "mean", "zero")
BILSTM_FIRST_STATES = ("ends", "layers")  # those that need the final states of a BiLSTM
FIRST_CONTEXTS = ("attention", "zero")
GLOBAL_EMBEDDINGS = ("none", "adaptive", "fixed")
GATES = ("sigmoid", "linear")


@dataclass
class OrderSettings:
    """Label order."""

    order: str = param(
        "frequency",
        "label order: most frequent first, parents first, random, or as given",
        choices=ORDERS,
        first=True,
        unless={"targets": ("completion",)},
    )


@dataclass
class SequenceSettings:
    """Label sequences."""

    targets: str = param(
        "sequence",
        "training targets: the next label in the label order (sequence), or every label that the model's own sequence still "
        "lacks (completion)",
        choices=TARGETS,
    )
    mask_repeats: bool = param(True, "whether labels that were generated are masked in later steps (I_t)")
    complete: bool = param(False, "whether labels are completed by their ancestors before training, where there is a tree")
    max_labels: int = param(0, "maximum length of a sequence; 0 = that of the longest in training", minimum=0)
    score_from: str = param(
        "pooled", "score of a label: maximum over the steps, or marginal over the beam", choices=("pooled", "marginal")
    )


@dataclass
class DecoderSettings:
    """Decoder."""

    decoder_size: int = param(512, "hidden units of the decoder; 0 = those of the encoder", minimum=0, first=True)
    decoder_layers: int = param(1, "layers of the decoder", minimum=1, maximum=24, first=True)
    label_embedding: int = param(256, "size of a label embedding", minimum=1)


@dataclass
class AttentionSettings:
    """Attention."""

    attention_size: int = param(256, "hidden units of additive attention", minimum=1, when={"attention": ("additive",)})
    heads: int = param(8, "attention heads", minimum=1)
    dense: int = param(256, "units of the layer before the output", minimum=1)


@dataclass
class SgmSettings:
    """SGM decoder."""

    attention: str = param("additive", "attention function: additive (eq. 4) or dot product", choices=ATTENTIONS)
    query: str = param("new", "decoder state that attends: the new one (s_t), or the previous one", choices=QUERIES)
    first_state: str = param(
        "ends",
        "initial decoder state: last outputs of both directions, final hidden and cell states of all layers, first token, "
        "mean, or zero",
        choices=FIRST_STATES,
    )
    first_context: str = param("attention", "context vector of the first step", choices=FIRST_CONTEXTS)
    global_embedding: str = param(
        "adaptive",
        "global embedding: none, by a gate (eq. 12-13), or by a fixed share (eq. 14)",
        choices=GLOBAL_EMBEDDINGS,
        first=True,
    )
    proportion: float = param(
        0.5, "share of the mean embedding (lambda, eq. 14)", minimum=0, maximum=1, when={"global_embedding": ("fixed",)}
    )
    gate: str = param(
        "sigmoid", "activation of the gate of the global embedding", choices=GATES, when={"global_embedding": ("adaptive",)}
    )
