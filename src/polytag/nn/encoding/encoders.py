"""Encoders, from token ids to one state per token: word embeddings, a BiLSTM over them, or any Hugging Face encoder.

An encoder is built from its description, plain JSON values in the artefact. A trained model therefore needs neither the hub nor
the package that the weights came from.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from polytag.errors import ArtefactError, ConfigError
from polytag.nn.encoding.bilstm_layer import BothWays
from polytag.nn.gpu.half_norm import keep_half_precision
from polytag.nn.gpu.padded_attention import length_mask, skip_padding

# These accept a mask of four dimensions. From a mask of two they build their own, and wait for the device to see any padding.
_MASK_AS_IS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
_LARGE = 128  # states from which bf16 is 1.4 times as fast or more on a CPU that has it, in training and prediction


class Encoder(nn.Module, ABC):
    """Base class: ``forward(ids, mask)``, both (batch, length), returns states (batch, length, hidden)."""

    hidden: int
    capturable: bool = True
    """Whether it never synchronises with the host, so that a step can be captured as a CUDA graph."""
    positions: int = 0
    """The maximum number of tokens of an input; 0 = no limit."""
    gains_by_bf16: bool = False
    """Whether its products are large enough for bf16 on a CPU to save more than the conversions cost."""
    last_size: int = 0
    """The size of the final hidden and cell states of all layers; 0 for an encoder that is not a BiLSTM."""

    @abstractmethod
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One state per token; states where the mask is False are undefined."""

    @abstractmethod
    def encode(self, embedded: Tensor, mask: Tensor, segments: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """The same from embeddings (batch, length, embedding), for tokens that are not in the vocabulary.

        ``segments`` (batch, length) is 0 for the first text of an input and 1 for the second, if the encoder has segments.
        ``positions`` (batch, length), from 0, are those of the tokens, if the encoder has positions; by default consecutive.
        """

    @abstractmethod
    def depths(self) -> dict[str, int]:
        """The layer of every parameter: 0 for the embeddings, 1 for the layer above them, and so on."""

    @abstractmethod
    def token_table(self) -> nn.Embedding:
        """The embeddings of the tokens."""

    def freeze(self, layers: int) -> None:
        """Freeze the embeddings and this number of lowest layers; 0 freezes nothing, a negative number everything."""
        depths = self.depths()
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(layers >= 0 and (layers == 0 or depths[name] > layers))


def pool(states: Tensor, mask: Tensor, how: str) -> Tensor:
    """One vector per document (batch, hidden): the state of the first token, or the mean or maximum over all tokens."""
    if how == "cls":
        return states[:, 0]
    if how == "max":
        return states.masked_fill(~mask[..., None], float("-inf")).amax(dim=1)
    weight = mask[..., None].to(states.dtype)
    return (states * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


class WordEncoder(Encoder):
    """Word embeddings without further layers; those of padding are zero."""

    def __init__(self, vocabulary: int, embedding: int) -> None:
        """Build the embedding table."""
        super().__init__()
        self.hidden = embedding
        self.table = nn.Embedding(vocabulary, embedding, padding_idx=0)
        nn.init.normal_(self.table.weight, std=0.1)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The embeddings."""
        return self.encode(self.table(ids), mask)

    def encode(self, embedded: Tensor, mask: Tensor, segments: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """The given embeddings (batch, length, embedding)."""
        return embedded * mask[..., None].to(embedded.dtype)

    def depths(self) -> dict[str, int]:
        """One layer."""
        return dict.fromkeys((name for name, _ in self.named_parameters()), 0)

    def token_table(self) -> nn.Embedding:
        """The embeddings of the words."""
        return self.table


class BiLSTM(Encoder):
    """A BiLSTM over word embeddings; a state is the concatenation of both directions (SGM, eq. 1-3).

    Sequences are not packed, because packing needs the lengths on the host. Padding follows the text, so it cannot affect the
    states from left to right. For the other direction every text is reversed within its own length.
    """

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, dropout: float) -> None:
        """Build the embedding table and the layers; ``hidden`` is the size of one direction."""
        super().__init__()
        self.hidden = 2 * hidden
        self.last_size = 4 * hidden * layers
        self.words = WordEncoder(vocabulary, embedding)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(BothWays(2 * hidden if number else embedding, hidden) for number in range(layers))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The states of the top layer; those of padding are zero."""
        return self._run(self.words.table(ids.T), mask)

    def encode(self, embedded: Tensor, mask: Tensor, segments: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """The same from word embeddings."""
        return self._run(embedded.transpose(0, 1), mask)

    def with_last(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The states, and the final hidden and cell states of all layers in both directions (batch, layers * 4 * hidden)."""
        ends: list[Tensor] = []
        states = self._run(self.words.table(ids.T), mask, ends)
        return states, torch.cat(ends, dim=1)

    def _run(self, embedded: Tensor, mask: Tensor, ends: list[Tensor] | None = None) -> Tensor:
        """States (batch, length, 2 * hidden) from (length, batch, embedding), the layout of cuDNN.

        The final states of every layer are appended to ``ends``.
        """
        states = self.words.encode(embedded, mask.T)
        lengths = mask.sum(dim=1, keepdim=True).clamp(min=1)  # (batch, 1)
        for layer in self.layers:
            if ends is None:
                states = layer(self.dropout(states), lengths)  # (length, batch, 2 * hidden)
            else:
                assert isinstance(layer, BothWays)
                states, end = layer.with_last(self.dropout(states), lengths)
                ends.append(end)
        inside = torch.arange(mask.shape[1], device=mask.device) < lengths  # (batch, length)
        return states.transpose(0, 1).contiguous() * inside[..., None].to(states.dtype)

    def depths(self) -> dict[str, int]:
        """0 for the embeddings; the parameters of the layers have names like ``layers.0.right.weight_ih_l0``."""
        found = {}
        for name, _ in self.named_parameters():
            found[name] = 1 + int(name.split(".")[1]) if name.startswith("layers.") else 0
        return found

    def token_table(self) -> nn.Embedding:
        """The embeddings of the words."""
        return self.words.table


class Transformer(Encoder):
    """A Hugging Face encoder built from its configuration, without its pooler."""

    def __init__(self, config: dict[str, Any], dropout: float | None) -> None:
        """Build the network with random weights; ``dropout`` replaces the configured one."""
        from transformers import AutoConfig, AutoModel

        super().__init__()
        settings = {key: value for key, value in config.items() if key not in ("model_type", "auto_map")}
        try:
            made = AutoConfig.for_model(config["model_type"], **settings)
        except (KeyError, ValueError, TypeError) as error:
            raise ArtefactError(
                f"the encoder's configuration is not understood ({error}); update the package transformers"
            ) from None
        if dropout is not None:
            _set_dropout(made, dropout)
        whole = AutoModel.from_config(made, attn_implementation=_attention(made), trust_remote_code=False, dtype=torch.float32)
        self.model = encoder_of(whole)
        if getattr(self.model, "pooler", None) is not None:
            self.model.pooler = nn.Identity()  # not None, as some families call it in any case
        self.hidden = int(made.hidden_size)
        self.gains_by_bf16 = self.hidden >= _LARGE
        most = int(getattr(made, "max_position_embeddings", 0) or 0)
        self.first_position = self._first_position()
        self.positions = max(0, most - self.first_position)
        self.segments = int(getattr(made, "type_vocab_size", 0) or 0)
        self.exact_mask = made.model_type in _MASK_AS_IS and self.model.config._attn_implementation == "sdpa"
        self.skips = self.exact_mask and skip_padding(self.model)
        keep_half_precision(self.model)

    def _first_position(self) -> int:
        """The position index of the first token; it follows that of padding where padding has a position embedding."""
        for name, module in self.model.named_modules():
            if name.endswith("position_embeddings") and isinstance(at := getattr(module, "padding_idx", None), int):
                return at + 1
        return 0

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The states of the last layer."""
        attended = length_mask(mask) if self.skips else self._attended(mask)
        states: Tensor = self.model(input_ids=ids, attention_mask=attended).last_hidden_state
        return states.float()

    def encode(self, embedded: Tensor, mask: Tensor, segments: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """The states of the last layer; the model adds its position and segment embeddings."""
        attended = self._attended(mask)
        told = {} if segments is None or self.segments < 2 else {"token_type_ids": segments}
        if positions is not None and self.positions:
            told["position_ids"] = positions + self.first_position
        states: Tensor = self.model(inputs_embeds=embedded, attention_mask=attended, **told).last_hidden_state
        return states.float()

    def _attended(self, mask: Tensor) -> Tensor:
        """The mask of the model's attention."""
        return mask[:, None, None, :] if self.exact_mask else mask.long()

    def depths(self) -> dict[str, int]:
        """0 for the embeddings, layers from 1; parameters above the layers have the depth of the top layer."""
        found, layers = {}, self._layers()
        top = len(layers)
        for name, _ in self.named_parameters():
            inside = [number + 1 for number, prefix in enumerate(layers) if name.startswith(prefix)]
            found[name] = inside[0] if inside else (0 if "embed" in name else top)
        return found

    def _layers(self) -> list[str]:
        """The parameter prefixes of the layers."""
        name, layers = self.layer_list()
        return [f"{name}.{number}." for number in range(len(layers))]

    def layer_list(self) -> tuple[str, nn.ModuleList]:
        """The layers, with the name of their list: the longest list of modules."""
        lists = [(name, module) for name, module in self.named_modules() if isinstance(module, nn.ModuleList)]
        return max(lists, key=lambda item: len(item[1]), default=("", nn.ModuleList()))

    def token_table(self) -> nn.Embedding:
        """The embeddings of the subwords."""
        table = self.model.get_input_embeddings()
        assert isinstance(table, nn.Embedding)
        return table


def encoder_of(model: Any) -> Any:
    """The model, or its encoder if it also has a decoder, as T5 and BART have; ConfigError if it does not encode text."""
    found = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model
    if not hasattr(model.config, "hidden_size") or not isinstance(found.get_input_embeddings(), nn.Embedding):
        raise ConfigError(f"a model of the type {model.config.model_type!r} does not encode text; name another encoder")
    return found


def build_encoder(description: dict[str, Any]) -> Encoder:
    """Build the encoder of a description, with random weights."""
    kind = description["kind"]
    if kind == "words":
        return WordEncoder(description["vocabulary"], description["embedding"])
    if kind == "bilstm":
        return BiLSTM(*(description[key] for key in ("vocabulary", "embedding", "hidden", "layers", "dropout")))
    if kind == "transformer":
        return Transformer(json.loads(description["config"]), description["dropout"])
    raise ArtefactError(f"there is no encoder of the kind {kind!r}; it was made by a newer version: update polytag")


def _attention(config: Any) -> str:
    """Torch's scaled dot-product attention, if the family of models supports it."""
    from transformers import AutoModel

    found = AutoModel._model_mapping.get(type(config), None)
    found = found[0] if isinstance(found, tuple) else found
    return "sdpa" if getattr(found, "_supports_sdpa", False) else "eager"


def _set_dropout(config: Any, dropout: float) -> None:
    """Set every dropout of a configuration; their names depend on the family of models."""
    for name, value in list(vars(config).items()):
        if ("dropout" in name or name.endswith("_pdrop")) and isinstance(value, int | float) and not isinstance(value, bool):
            setattr(config, name, dropout)
