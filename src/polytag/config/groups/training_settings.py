"""How a network is trained, and on what it computes."""

from __future__ import annotations

from dataclasses import dataclass

from polytag.config.settings import param

SCHEDULES = ("linear", "cosine", "constant", "halving")
DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("auto", "fp32", "bf16", "fp16")
COMPILES = ("auto", "on", "off")
SHARDS = ("none", "optimiser", "weights")


@dataclass
class TrainingSettings:
    """Training."""

    epochs: int = param(5, "number of epochs", minimum=1, first=True)
    batch_size: int = param(32, "documents per batch", minimum=1, first=True)
    accumulate: int = param(1, "batches per optimiser step (gradient accumulation)", minimum=1)
    encoder_rate: float = param(1e-4, "learning rate of the encoder's top layer", minimum=0, first=True)
    head_rate: float = param(1e-3, "learning rate of all other layers", minimum=0, first=True)
    layer_decay: float = param(
        1.0, "factor on the learning rate from each encoder layer to the one below", minimum=0.01, maximum=1
    )
    frozen_layers: int = param(0, "number of lowest encoder layers that are frozen, with the embeddings; -1 = all", minimum=-1)
    warmup: float = param(0.1, "warm-up steps; below 1: share of all steps", minimum=0)
    schedule: str = param("linear", "learning rate schedule after warm-up", choices=SCHEDULES)
    full_epochs: int = param(
        2, "number of epochs at the full learning rate; every later epoch halves it", minimum=1, when={"schedule": ("halving",)}
    )
    weight_decay: float = param(0.01, "weight decay of AdamW", minimum=0)
    beta1: float = param(0.9, "AdamW's decay of the first moment", minimum=0, maximum=1)
    beta2: float = param(0.999, "AdamW's decay of the second moment", minimum=0, maximum=1)
    epsilon: float = param(1e-8, "AdamW's epsilon for up to 100 outputs; scaled down for more", minimum=0)
    clip: float = param(1.0, "gradient clipping: largest norm; 0 = none", minimum=0)
    average: float = param(0.0, "decay of a moving average of the weights, which replaces them; 0 = none", minimum=0, maximum=1)
    patience: int = param(0, "early stopping: evaluations without improvement; 0 = never", minimum=0)
    evaluate_every: int = param(0, "steps between evaluations; 0 = once per epoch", minimum=0)
    max_steps: int = param(0, "maximum number of steps; 0 = all epochs", minimum=0)
    minutes: float = param(0.0, "maximum minutes of training, to which the number of steps is fitted; 0 = no limit", minimum=0)
    dropout: float = param(0.1, "dropout of the head or decoder", minimum=0, maximum=0.95, first=True)
    encoder_dropout: float | None = param(
        None, "dropout inside the encoder; none = the encoder's own", minimum=0, maximum=0.95, unless={"encoder": ("words",)}
    )
    log_every: int = param(50, "steps between losses in the log", minimum=1)
    checkpoint_seconds: float = param(60.0, "seconds between checkpoints", minimum=0)
    tensorboard: bool = param(False, "whether learning curves are also written for TensorBoard")


@dataclass
class ComputeSettings:
    """Device."""

    device: str = param("auto", "device: auto = cuda if there is one", choices=DEVICES)
    precision: str = param(
        "auto", "precision of products; auto = bf16 if the GPU, or for transformers the CPU, has it", choices=PRECISIONS
    )
    graphs: bool = param(True, "whether training steps are captured as CUDA graphs where possible")
    compile: str = param(
        "auto", "whether the layers of a transformer are compiled for training on a GPU; auto = if that saves time",
        choices=COMPILES,
    )  # fmt: skip
    pad_multiple: int = param(1, "batches are padded to a multiple of this number of tokens", minimum=1)
    shard: str = param(
        "none", "what several processes divide: optimiser = its moments; weights = also large layers (FSDP)", choices=SHARDS
    )
