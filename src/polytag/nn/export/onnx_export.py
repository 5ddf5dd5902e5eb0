"""Export of a trained network to ONNX, and inference with the export, which is fastest on a CPU.

An export is the folder ``onnx`` next to the artefact's folder ``model``. It contains ``model.onnx``, and ``export.json`` with the
checksums of that file and of its artefact. An export of another artefact is not used.
"""

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
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polytag.errors import ArtefactError, ConfigError
from polytag.nn.encoding.encoders import BiLSTM, Encoder, Transformer
from polytag.nn.encoding.inference import for_inference
from polytag.nn.export.onnx_lstm import with_onnx_lstm
from polytag.storage.artefact import file_digest, manifest_digest, polytag_version

log = logging.getLogger(__name__)
FORMAT = 2
NETWORK, ABOUT = "model.onnx", "export.json"
SWITCH = "POLYTAG_ONNX"  # environment variable; 0 disables exports
TOLERANCE = 1e-3  # maximum difference of a probability between the export and torch
_OPSET = 18  # ONNX Runtime can fuse the operations of this version
_ATTENTION = "polytag_onnx"
_TEMPORARY = ".export-"  # prefix of folders that an export works in
_SHAPES = ((1, 5), (3, 16), (2, 31))  # documents and tokens of the test inputs of an export
_PLACES = 512  # tokens that are encoded at once; more do not fit into a processor's caches


class OnnxNetwork(nn.Module):
    """A network that runs in ONNX Runtime, with torch's number of threads."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        import onnxruntime

        super().__init__()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the library's error types have no common base
            raise ArtefactError(f"{path} cannot be opened ({_line(error)}); export again, or remove the folder") from None

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits (batch, labels). Documents of the same length are encoded together, so that there is no padding or mask."""
        lengths = mask.sum(dim=1).numpy()
        order = np.argsort(lengths, kind="stable")
        ends = np.flatnonzero(np.diff(lengths[order], append=-1)) + 1
        parts = []
        for start, stop in pairwise([0, *ends.tolist()]):
            length = int(lengths[order[start]])
            few = max(1, _PLACES // max(1, length))
            parts += [self._run(ids, order[at : min(at + few, stop)], length) for at in range(start, stop, few)]
        logits = np.concatenate(parts)
        return torch.from_numpy(logits[np.argsort(order)])

    def _run(self, ids: Tensor, rows: NDArray[Any], length: int) -> NDArray[Any]:
        (logits,) = self.session.run(None, {"ids": ids.numpy()[rows, :length]})
        return np.asarray(logits)


# -- existing exports --------------------------------------------------------------------------------------------------


def export_folder(artefact: Path) -> Path:
    """The folder of an artefact's export: ``onnx`` next to ``model``."""
    place = artefact.resolve()
    return place.with_name("onnx" if place.name == "model" else f"{place.name}-onnx")


def fresh_export(artefact: Path) -> Path | None:
    """The exported file of exactly this artefact, if there is one and exports are enabled."""
    folder = export_folder(artefact)
    if os.environ.get(SWITCH) == "0" or not (folder / ABOUT).is_file():
        return None
    about = _about(folder)
    if about["artefact"] != manifest_digest(artefact):
        log.warning("%s was made from another model and is not used; export again", folder)
        return None
    if about["format"] != FORMAT:
        log.warning("%s was made by an older version and is not used; export again", folder)
        return None
    if importlib.util.find_spec("onnxruntime") is None:
        log.warning("%s is not used: the package onnxruntime is missing; install polytag[export]", folder)
        return None
    return folder / NETWORK


def open_export(path: Path) -> OnnxNetwork:
    """The network in an exported file, after a check of its checksum."""
    if not path.is_file() or file_digest(path) != _about(path.parent)["sha256"]:
        raise ArtefactError(f"{path} is missing or was changed after it was exported; export again, or remove the folder")
    return OnnxNetwork(path)


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / ABOUT).read_bytes())
        sound = about["format"] <= FORMAT and isinstance(about["artefact"], str) and isinstance(about["sha256"], str)
    except (OSError, ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise ArtefactError(f"{folder / ABOUT} does not describe an export; export again, or remove the folder")
    return dict(about)


# -- exporting ---------------------------------------------------------------------------------------------------------


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
    with _quiet():
        _trace(plain, path)
        _compare(plain, OnnxNetwork(path))
        if int8:
            _quantise(path)
            OnnxNetwork(path)


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
            f"this network cannot be exported to ONNX ({_line(error.__cause__ or error)}); predict with torch instead"
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
    and the export may run on another machine.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(path)
    del graph.graph.value_info[:]  # some shapes of the exporter contradict those that the quantiser infers
    quantize_dynamic(
        graph, path, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True, reduce_range=True,
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


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
