"""Weights on disk: one safetensors file, the configuration as JSON in its header. No pickle anywhere."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, fields
from importlib import resources
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from lehd.errors import LehdError
from lehd.model.lehd import LEHD, ModelConfig

SHIPPED = Path("shipped")  # what stands for the weights of the package


def save_model(model: LEHD, path: str | Path, half: bool = False, notes: dict[str, str] | None = None) -> None:
    """Write atomically; `half` stores 16-bit numbers, `notes` are strings to keep with the weights."""
    weights = {
        name: (tensor.half() if half and tensor.is_floating_point() else tensor).detach().cpu().contiguous()
        for name, tensor in model.state_dict().items()
    }
    data = save(weights, {"config": json.dumps(asdict(model.config)), **(notes or {})})
    write_atomically(Path(path), data)


def load_model(path: str | Path, device: torch.device | str = "cpu") -> LEHD:
    """The model in a file that `save_model` wrote, in single precision, ready for inference."""
    path = Path(path)
    if not path.is_file():
        raise LehdError(f"{path}: no such weights file")
    try:
        with safe_open(path, framework="pt") as file:
            notes = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise LehdError(f"{path}: not a readable safetensors file ({error})") from None
    try:
        config = dict(json.loads(notes["config"]))
        known = {field.name for field in fields(ModelConfig)}
        model = LEHD(ModelConfig(**{key: value for key, value in config.items() if key in known}))
        unknown = config.keys() - known
    except (KeyError, TypeError, ValueError) as error:
        raise LehdError(f"{path}: no model configuration in the file's header ({error})") from None
    if not all(bool(torch.isfinite(tensor).all()) for tensor in weights.values()):
        raise LehdError(f"{path}: some weights are not finite numbers")
    if unknown:
        raise LehdError(f"{path}: unknown configuration: {', '.join(sorted(unknown))}")
    try:
        model.load_state_dict({name: w.float() if w.is_floating_point() else w for name, w in weights.items()})
    except RuntimeError as error:
        raise LehdError(f"{path}: the weights do not fit their configuration ({error})") from None
    return model.to(device).eval()


def shipped_weights(problem: str) -> Path:
    """The weights the package carries for a problem."""
    return Path(str(resources.files("lehd") / "weights" / f"{problem.lower()}.safetensors"))


def load_for(problem: str, sizes: dict[str, int], source: str | Path, device: torch.device | str = "cpu") -> LEHD:
    """The model in a file, or the package's own if that is what `source` says; it must have a problem's sizes."""
    model = load_model(shipped_weights(problem) if source == SHIPPED else source, device)
    if not model.config.has(sizes):
        raise LehdError(f"{source}: weights for another problem than {problem}")
    return model


def fingerprint(model: LEHD) -> str:
    """Twelve hexadecimal digits that stand for configuration and weights."""
    config = asdict(model.config)
    if not model.config.sharpen:
        del config["sharpen"]  # weights from before it was there keep their digits
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def write_atomically(path: Path, data: bytes) -> None:
    """Either the whole file is there afterwards, or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
