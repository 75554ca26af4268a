"""Recordings on a GPU, without one."""

from unittest.mock import MagicMock

import pytest
import torch

from lehd.memory import out_of_memory
from lehd.recording import Recorder


def recorder(monkeypatch, capture_end=None):
    """A recorder that records nothing."""
    cuda = MagicMock()
    cuda.CUDAGraph.return_value.capture_end.side_effect = capture_end
    monkeypatch.setattr(torch, "cuda", cuda)
    return Recorder(torch.device("cuda")), cuda.CUDAGraph.return_value


def fail(error):
    raise error


def test_what_went_wrong_first_is_told(monkeypatch):
    """Out of memory in the midst of a recording, the recording cannot be ended either."""
    spoilt = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    mine, graph = recorder(monkeypatch, capture_end=spoilt)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        mine.record(lambda: fail(torch.OutOfMemoryError("CUDA out of memory")))
    assert out_of_memory(caught.value)
    graph.capture_end.assert_called_once()
    with pytest.raises(RuntimeError, match="operation failed"):
        mine.record(lambda: None)


def test_a_recording_is_ended_once(monkeypatch):
    mine, graph = recorder(monkeypatch)
    done = []
    assert mine.record(lambda: done.append(True)) is graph
    assert done == [True]
    graph.capture_end.assert_called_once()
