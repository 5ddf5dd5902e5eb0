"""The tables of speed for the book, and what all tables are made of."""

from __future__ import annotations

from functools import partial
from typing import Any

from headlines import plain


def cells_of(*cells: Any) -> str:
    """A row of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


four_digits = partial(plain, digits=4)


def training_speed(found: dict[str, Any]) -> str:
    """Documents per second, share of the peak and memory of every loop; ``before`` is the tree before the changes."""
    head = ["network", "batch size", "loop", "documents/s", "over before", "over the Trainer", "share of peak", "peak GiB"]
    lines = [cells_of(*head), cells_of(*["---"] * len(head))]
    rows = found["rows"]
    for name, row in sorted(rows.items()):
        shape, size, loop = name.split()
        earlier = rows.get(f"{shape} {size} before") if loop == "polytag" else None
        over = f"{row['documents_per_second'] / earlier['documents_per_second']:.2f}" if earlier else ""
        times = f"{found['times_the_trainer'][name]:.1f}" if name in found["times_the_trainer"] else ""
        share = f"{100 * row['share_of_peak']:.1f} %" if "share_of_peak" in row else ""
        numbers = f"{row['documents_per_second']:,.0f}", over, times, share, f"{row['peak_gib']:.1f}"
        lines.append(cells_of(shape, size, loop, *numbers))
    return "\n".join(lines)


def extreme_prediction(found: dict[str, Any]) -> str:
    """Milliseconds per document from the same rows, and PECOS's time divided by ours."""
    head = ["labels", "documents", "batch, ms", "PECOS, ms", "ratio", "single, ms", "PECOS, ms", "ratio", "P@1", "PECOS, P@1"]
    lines = [cells_of(*head), cells_of(*["---"] * len(head))]
    for row in found["rows"]:
        name = row["corpus"] if row["corpus"].isalpha() else f"{int(row['corpus']):,} synthetic"
        batch, single = ([row[f"{side}_{kind}_ms"] for side in ("polytag", "pecos")] for kind in ("batch", "single"))
        firsts = [four_digits(row[f"{side}_p@1,3,5"][0]) for side in ("polytag", "pecos")]
        cells = *batch, row["batch_ratio"], *single, row["single_ratio"], *firsts
        lines.append(cells_of(name, f"{row['documents']:,}", *cells))
    return "\n".join(lines)


def gpu_prediction(found: dict[str, Any]) -> str:
    """Documents per second of every side."""
    lines = [cells_of("method", "documents/s"), cells_of("---", "---")]
    lines += [cells_of(name, f"{row['documents_per_second']:,.0f}") for name, row in found["rows"].items()]
    return "\n".join(lines)


_STEP = ("gathering", "encoder forward", "encoder backward", "decoder forward", "decoder backward", "clipping, optimiser")


def sgm_speed(found: dict[str, Any]) -> str:
    """Documents per second of SGM and its variants, then the GPU time of the parts of a step."""
    rows = found["rows"]
    lines = [cells_of("training", "documents/s", "ms per step", "speed-up over before"), cells_of(*["---"] * 4)]
    for name, row in rows.items():
        if "speed" not in row:
            continue
        speed, first = row["speed"], row.get("before_in_the_same_run", rows["before"]["speed"])
        faster = (
            f"{speed['documents_per_second'] / first['documents_per_second']:.2f}"
            if row["model"] == "sgm" and not row["options"]
            else ""
        )
        lines.append(cells_of(name, f"{speed['documents_per_second']:,.0f}", f"{speed['step_ms']:.1f}", faster))
    timed = {name: row["parts"]["ms"] for name, row in rows.items() if "parts" in row}
    lines += ["", cells_of("GPU time of a step, ms", *timed), cells_of(*["---"] * (1 + len(timed)))]
    lines += [cells_of(part, *(f"{times[part]:.2f}" for times in timed.values())) for part in (*_STEP, "whole step")]
    return "\n".join(lines)


def cpu_prediction(found: dict[str, Any]) -> str:
    """Documents per second of every inference method, by processor."""
    lines = [cells_of("processor", "method", "documents/s", "speed-up over the pipeline", "micro-F1"), cells_of(*["---"] * 5)]
    for row in found["rows"]:
        kind = row["machine"]["cpu"].removesuffix(" Processor").replace("(R)", "") + (", bf16" if row["bf16"] else "")
        kind += f", torch limited to {row['hidden_from_torch']}" if row["hidden_from_torch"] else ""
        for name, speed in row["documents_per_second"].items():
            quality = row["agreement"].get(name)
            times = row["times_the_pipeline"].get(name, 1.0)
            score = four_digits(quality["micro_f1"]) if quality else ""
            lines.append(cells_of(kind, name, f"{speed:.1f}", f"{times:.2f}", score))
    return "\n".join(lines)


def decoding(found: dict[str, Any]) -> str:
    """Documents per second by beam width, and the end-to-end time where it was measured."""
    head = ["beam width", "labels per document", "decoded documents/s", "end-to-end time relative to beam width 1"]
    lines = [cells_of(*head), cells_of(*["---"] * len(head))]
    for row in found["rows"]:
        whole = f"{row['whole_times_beam_1']:.2f}" if "whole_times_beam_1" in row else ""
        speed = f"{row['decoded_documents_per_second']:,.0f}"
        lines.append(cells_of(row["beam"], f"{row['labels_per_document']:.2f}", speed, whole))
    return "\n".join(lines)


def padding(found: dict[str, Any]) -> str:
    """Share of padding by batch size."""
    keys = ("padding", "padding_in_multiples_of_32", "padding_if_shuffled")
    lines = [cells_of("batch size", "padding", "padding, multiples of 32", "padding, shuffled"), cells_of(*["---"] * 4)]
    lines += [cells_of(row["batch_size"], *(f"{100 * row[key]:.1f} %" for key in keys)) for row in found["rows"]]
    return "\n".join(lines)
