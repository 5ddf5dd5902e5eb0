"""Export of a trained network to ONNX: traced, compared with the network, quantised if asked for, and put in its place."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polytag.errors import ArtefactError, ConfigError
from polytag.nn.encoding.encoders import BiLSTM, Encoder, Transformer
from polytag.nn.encoding.inference import for_inference
from polytag.nn.export.onnx_lstm import with_onnx_lstm
from polytag.nn.export.onnx_network import ABOUT, FORMAT, NETWORK, OnnxNetwork, error_line, export_folder
from polytag.storage.artefact import file_digest, manifest_digest, polytag_version

SEVEN_BITS = True  # of eight: with all, processors without VNNI overflow, and those with it are neither faster nor more precise
TOLERANCE = 1e-3  # maximum difference of a probability between the export and torch
_OPSET = 18  # ONNX Runtime can fuse the operations of this version
_ATTENTION = "polytag_onnx"
_TEMPORARY = ".export-"  # prefix of folders that an export works in
_SHAPES = ((1, 5), (3, 16), (2, 31))  # documents and tokens of the test inputs of an export


def export_network(network: nn.Module, artefact: Path, *, int8: bool = False) -> Path:
    """Write the network next to its artefact, quantised if ``int8``; return the folder."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"an export to ONNX needs the package {package!r}; install polytag[export]")
    folder = export_folder(artefact)
    if folder.exists() and not (folder / ABOUT).is_file():
        raise ConfigError(f"{folder} exists and is not an export; move it away")
    for left in folder.parent.glob(f"{_TEMPORARY}*"):  # by an export that was killed
        shutil.rmtree(left, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_TEMPORARY, ignore_cleanup_errors=True) as temporary:
            made = Path(temporary) / "onnx"
            made.mkdir()
            _write(network, made / NETWORK, int8)
            about = {
                "format": FORMAT, "polytag": polytag_version(), "int8": int8,
                "artefact": manifest_digest(artefact), "sha256": file_digest(made / NETWORK),
            }  # fmt: skip
            (made / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
            _replace(folder, made)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ArtefactError(f"{folder}: cannot export here ({reason}); make room or move the run; nothing was lost") from None
    return folder


def _replace(folder: Path, made: Path) -> None:
    """Move a new export to its place; the earlier one is moved away whole, and in between there is none."""
    old = made.with_name("old")
    if folder.exists():
        os.replace(folder, old)
    try:
        os.replace(made, folder)
    except OSError:
        if old.exists():
            os.replace(old, folder)
        raise


def _write(network: nn.Module, path: Path, int8: bool) -> None:
    """Trace the network, compare the graph with it, and only then quantise."""
    plain = copy.deepcopy(network).to("cpu").eval()
    with torch.inference_mode():
        outputs = plain(*_sample(plain, *_SHAPES[0])).shape[1]
    with _quiet():
        _trace(plain, path)
        _compare(plain, OnnxNetwork(path, outputs))
        if int8:
            _quantise(path)
            OnnxNetwork(path, outputs)


def _trace(network: nn.Module, path: Path) -> None:
    """Write the graph of a network for any number of documents and tokens."""
    network = for_inference(copy.deepcopy(network))
    encoder = getattr(network, "encoder", None)
    if isinstance(encoder, Transformer) and encoder.exact_mask:
        from transformers import AttentionInterface

        AttentionInterface.register(_ATTENTION, _attention)
        encoder.model.config._attn_implementation = _ATTENTION
        _fuse_gelu(encoder)
    if isinstance(encoder, BiLSTM):
        with_onnx_lstm(encoder)
    any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    try:
        torch.onnx.export(
            _Unmasked(network), _sample(network, *_SHAPES[1])[:1], str(path), input_names=["ids"], output_names=["logits"],
            opset_version=_OPSET, dynamo=True, dynamic_shapes={"ids": any_size}, external_data=False, verbose=False,
        )  # fmt: skip
    except OSError:
        raise
    except Exception as error:  # the exporter raises any type for unsupported operations
        raise ConfigError(
            f"this network cannot be exported to ONNX ({error_line(error.__cause__ or error)}); predict with torch instead"
        ) from error


class _Unmasked(nn.Module):
    """A network for documents of one length, without a mask."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.network(ids, torch.ones_like(ids, dtype=torch.bool))
        return found


class _Gelu(nn.Module):
    """GELU as one operation of ONNX Runtime, which no longer fuses the five operations of the exporter."""

    def forward(self, states: Tensor) -> Tensor:
        return torch.onnx.ops.symbolic("com.microsoft::Gelu", [states], {}, dtype=states.dtype, shape=states.shape, version=1)


def _fuse_gelu(encoder: nn.Module) -> None:
    for module in encoder.modules():
        for name, part in module.named_children():
            if type(part).__name__ == "GELUActivation" or (isinstance(part, nn.GELU) and part.approximate == "none"):
                setattr(module, name, _Gelu())


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None = None, **rest: Any
) -> tuple[Tensor, None]:
    """Unmasked attention as one operation of ONNX Runtime: (batch, heads, length, size) to (batch, length, heads, size)."""
    batch, heads, length, size = query.shape
    flat = [part.transpose(1, 2).reshape(batch, part.shape[2], heads * size) for part in (query, key, value)]
    found = torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        flat,
        {"num_heads": heads, "scale": size**-0.5 if scaling is None else float(scaling)},
        dtype=query.dtype,
        shape=(batch, length, heads * size),
        version=1,
    )
    return found.view(batch, length, heads, size), None


def _quantise(path: Path) -> None:
    """Quantise weights to 8 bits with one scale per output; activations are quantised dynamically.

    Only seven of the eight bits are used: processors without VNNI add two products in 16 bits, which eight bits would overflow,
    and the export may run on another machine. Where nothing overflows, seven bits are as good (benchmarks/cpu_prediction.py).
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(path)
    del graph.graph.value_info[:]  # some shapes of the exporter contradict those that the quantiser infers
    quantize_dynamic(
        graph, path, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True, reduce_range=SEVEN_BITS,
        weight_type=QuantType.QInt8, extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )  # fmt: skip


def _compare(network: nn.Module, exported: OnnxNetwork) -> None:
    """Raise unless both give the same probabilities, also for other input sizes than the traced one."""
    for shape in _SHAPES:
        ids, mask = _sample(network, *shape)
        with torch.inference_mode():
            expected, found = torch.sigmoid(network(ids, mask)), torch.sigmoid(exported(ids, mask))
        worst = float((expected - found).abs().max())
        if not worst <= TOLERANCE:
            raise ConfigError(f"the exported network's scores differ from torch's by {worst:.2g}; predict with torch instead")


def _sample(network: nn.Module, documents: int, length: int) -> tuple[Tensor, Tensor]:
    """Token ids and a mask; every document but the first has padding."""
    encoder = getattr(network, "encoder", None)
    size = encoder.token_table().num_embeddings if isinstance(encoder, Encoder) else 2
    length = min(length, getattr(encoder, "positions", 0) or length)
    ids = (torch.arange(documents * length) * 7919 % size).view(documents, length)
    mask = torch.arange(length) < length - 2 * torch.arange(documents)[:, None]
    return ids, mask | (torch.arange(length) == 0)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress output and warnings of exporter and quantiser; users cannot act on them."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
