"""Processes of one run as torchrun would start them, but out of a server that has loaded torch already."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import torch

from lehd.errors import LehdError
from lehd.training import loop

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch._dynamo", "tests.training.test_processes"])  # what optimizers import late


def run_ranks(work, arguments, launcher=""):
    """What `work` returns in each process, called with its own arguments; LehdErrors are returned too."""
    with tempfile.TemporaryDirectory() as folder:
        pipes = [CONTEXT.Pipe(duplex=False) for _ in arguments]
        processes = [
            CONTEXT.Process(target=_as_rank, args=(rank, len(arguments), folder, launcher, sender, work, own))
            for rank, (own, (_, sender)) in enumerate(zip(arguments, pipes))
        ]
        for process in processes:
            process.start()
        try:
            for _, sender in pipes:
                sender.close()  # so that a process that dies ends its pipe
            return [receiver.recv() for receiver, _ in pipes]
        finally:
            for process in processes:
                process.join(60)
                process.kill()


def _as_rank(rank, count, folder, launcher, sender, work, arguments):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    if launcher:
        os.environ["TORCHELASTIC_ERROR_FILE"] = f"{launcher}/{rank}/error.json"
    meeting = Path(folder, "meeting").as_uri()
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=count)
    loop._draw_curves = lambda folder: None  # pictures take longer than such small runs
    try:
        sender.send(work(*arguments))
    except LehdError as error:
        sender.send(error)
