"""NVIDIA's MPS for the processes that share a GPU: without it the GPU serves one of them after the other.

Where the program that controls it is installed (it comes with the driver) and none is running, one is started for the
processes of this benchmark alone, and ended with it. Where it cannot be had, several cells share one process instead,
in lanes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spurless.bench.one import cores

if TYPE_CHECKING:
    import torch

CONTROL = "nvidia-cuda-mps-control"
PROCESSES = 8  # with so many, the 45 trainings of PGD's table 1 took 6.5 minutes on an H200
MEMORY = 16 * 2**30  # bytes of a GPU for each process; a cell that needs more than its share has a row that says so
PATIENCE = 20  # seconds in which the control program must answer

# Whether a process can reach the GPU this way is asked of the driver: torch would take seconds to be imported.
PROBE = """
import ctypes, sys
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
steps = lambda: (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), int(sys.argv[1])),
                 cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
sys.exit(any(steps()))
"""


def processes_on(gpu: torch.device, cells: int) -> int:
    """How many processes do so many cells on this GPU, if nobody says; 1 stands for lanes."""
    import torch

    return processes(cells, torch.cuda.get_device_properties(gpu).total_memory)


def processes(cells: int, memory: int) -> int:
    """The same for a GPU with so many bytes.

    A few cells are sooner done in lanes than processes are started.

    >>> processes(45, 8 * 2**30), processes(1, 2**40)
    (1, 1)
    """
    count = min(PROCESSES, cores() // 2, memory // MEMORY)
    return count if cells >= count > 1 and shutil.which(CONTROL) else 1


@contextmanager
def shared_gpu(index: int = 0) -> Iterator[dict[str, str] | None]:
    """What the environment of processes must hold to share the GPU; None where MPS cannot be had."""
    if shutil.which(CONTROL) is None:
        yield None
        return
    if _told([CONTROL], dict(os.environ), "get_server_list\n"):  # one is running
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="spurless-mps-", ignore_cleanup_errors=True) as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        # The server numbers the GPUs that it sees anew: a process behind it must not choose among them again.
        behind = own | ({"CUDA_VISIBLE_DEVICES": ""} if os.environ.get("CUDA_VISIBLE_DEVICES") else {})
        control = os.environ | own
        try:
            started = _told([CONTROL, "-d"], control)
            yield behind if started and _told([sys.executable, "-c", PROBE, str(index)], changed(behind)) else None
        finally:
            _told([CONTROL], control, "quit\n")


def changed(by: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with the changes; a name that is changed to nothing is not in it.

    >>> "PATH" in changed({"PATH": ""}), changed({"A_NAME": "x"})["A_NAME"]
    (False, 'x')
    """
    return {name: value for name, value in (os.environ | dict(by)).items() if by.get(name, value)}


def _told(command: list[str], environment: dict[str, str], words: str = "") -> bool:
    """Whether the command took these words and said that all is well."""
    try:
        done = subprocess.run(
            command, input=words, env=environment, text=True, timeout=PATIENCE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
