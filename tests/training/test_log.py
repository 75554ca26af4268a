import json
import sys
from types import ModuleType

import pytest

from lehd.errors import LehdError
from lehd.training.curves import plot_curves
from lehd.training.log import Log, read_log


def test_lines_after_the_checkpoint_and_torn_ones_are_dropped(tmp_path):
    lines = [json.dumps({"step": step, "loss": 1 / step}) for step in (1, 2, 3, 4)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + '\n{"step": 5, "lo')
    log = Log(tmp_path, after=3)
    log.write({"step": 4, "loss": 9.0})
    log.close()
    assert [(record["step"], record["loss"]) for record in read_log(tmp_path)] == [(1, 1), (2, 0.5), (3, 1 / 3), (4, 9)]


def test_tensorboard_gets_the_same_numbers_where_it_is_installed(tmp_path, monkeypatch):
    seen, folders = [], []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            folders.append((folder, purge_step))

        def add_scalar(self, name, value, step):
            seen.append((name, value, step))

        def close(self):
            seen.append("closed")

    board = ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    log = Log(tmp_path, after=7)
    log.write({"step": 8, "loss": 0.5})
    log.close()
    assert folders == [(str(tmp_path / "tensorboard"), 8)]
    assert seen == [("loss", 0.5, 8), "closed"]


def test_curves_show_what_the_log_holds(tmp_path):
    records = [{"step": step, "loss": 1 / step, "accuracy": 0.5, "learning_rate": 1e-3} for step in (1, 2, 4)]
    records.append({"step": 4, "validation_loss": 0.2, "validation_accuracy": 0.6, "greedy_gap": -0.5})
    records.append({"step": 4, "average_validation_loss": 0.1})
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    figure = plot_curves(tmp_path, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    loss, accuracy, gap, rate = figure.axes
    assert [list(line.get_ydata()) for line in loss.lines] == [[1, 0.5, 0.25], [0.2], [0.1]]
    assert loss.get_yscale() == "log"
    assert list(accuracy.lines[1].get_ydata()) == [0.6]
    assert gap.get_yscale() == "linear"  # a gap may be negative where labels are not optimal
    assert list(rate.lines[0].get_xdata()) == [1, 2, 4]
    assert {path.name for path in tmp_path.iterdir()} == {"log.jsonl", "curves.png"}


def test_no_log_no_curves(tmp_path):
    with pytest.raises(LehdError, match="no lines"):
        plot_curves(tmp_path, tmp_path / "curves.png")
