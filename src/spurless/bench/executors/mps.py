"""NVIDIA's MPS for the processes that share a GPU: without it the GPU serves one of them after the other.

Where the program that controls it is installed (it comes with the driver) and none is running, one is started for the
processes of this benchmark alone, and ended with it. Where it cannot be had, several trials share one process instead,
in lanes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from spurless.core.threads import cores

if TYPE_CHECKING:
    import torch

CONTROL = "nvidia-cuda-mps-control"
MOST, LEAST = 8, 4  # processes; with eight, 45 trainings of PGD's table 1 take 6.5 to 7 minutes on an H200
MEMORY = 16 * 2**30  # free bytes of the GPU for each process
PATIENCE = 20  # seconds in which the control program must answer

# Asked of the driver by a process of its own: torch would take seconds to be imported, and leave a context behind.
PROBE = """
import ctypes, sys
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
steps = (
    lambda: cuda.cuInit(0),
    lambda: cuda.cuDeviceGet(ctypes.byref(device), int(sys.argv[1])),
    lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
    lambda: cuda.cuCtxPushCurrent_v2(context),
    lambda: cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
)
sys.exit(any(step() for step in steps) or print(free.value))
"""
# Waits until the process that started it is gone, however that ended, and then ends the MPS.
GUARD = """
import shutil, subprocess, sys
sys.stdin.read()
subprocess.run([sys.argv[1]], input="quit\\n", text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


def processes_on(gpu: torch.device, trials: int) -> int:
    """How many processes do so many trials on this GPU, if nobody says; 1 stands for lanes."""
    if trials < 2 * LEAST or shutil.which(CONTROL) is None:
        return 1
    return processes(trials, int(_told([sys.executable, "-c", PROBE, str(gpu.index or 0)], os.environ) or 0))


def processes(trials: int, free: int) -> int:
    """The same for a GPU with so many free bytes.

    Lanes are at once, and adapt to the memory that there is: processes are for many trials on a GPU with much room, and
    take some seconds to start, so that each should have about two trials. Of an odd number one has one: another would
    have a third, and the others nothing to do meanwhile.

    >>> processes(45, 8 * 2**30), processes(6, 2**40)
    (1, 1)
    """
    count = min(MOST, cores() // 2, free // MEMORY, -(-trials // 2))
    return count if count >= LEAST else 1


@contextmanager
def shared_gpu(index: int = 0) -> Iterator[dict[str, str] | None]:
    """What the environment of processes must hold to share the GPU; None where MPS cannot be had."""
    if shutil.which(CONTROL) is None:
        yield None
    elif _told([CONTROL], os.environ, "get_server_list\n") is not None:  # one is running
        yield {} if _reached(index, {}) else None
    else:
        with _own() as (behind, started):
            yield behind if started and _reached(index, behind) else None


@contextmanager
def _own() -> Iterator[tuple[dict[str, str], bool]]:
    """An MPS that ends with this process; what a process behind it needs, and whether it was started."""
    folder = tempfile.mkdtemp(prefix="spurless-mps-")
    own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    guard = subprocess.Popen(
        [sys.executable, "-c", GUARD, CONTROL, folder],
        stdin=subprocess.PIPE, env=os.environ | own, start_new_session=True,
    )  # fmt: skip
    # The server numbers the GPUs that it sees anew: a process behind it must not choose among them again.
    behind = own | ({"CUDA_VISIBLE_DEVICES": ""} if os.environ.get("CUDA_VISIBLE_DEVICES") else {})
    try:
        yield behind, _told([CONTROL, "-d"], os.environ | own) is not None
    finally:
        assert guard.stdin
        guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            guard.wait(PATIENCE)


def changed(by: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with the changes; a name that is changed to nothing is not in it.

    >>> "PATH" in changed({"PATH": ""}), changed({"A_NAME": "x"})["A_NAME"]
    (False, 'x')
    """
    return {name: value for name, value in (os.environ | dict(by)).items() if by.get(name) != ""}


def _reached(index: int, behind: Mapping[str, str]) -> bool:
    """Whether a process with these changes reaches the GPU."""
    return _told([sys.executable, "-c", PROBE, str(index)], changed(behind)) is not None


def _told(command: list[str], environment: Mapping[str, str], words: str = "") -> str | None:
    """What the command answered to these words; None if it failed."""
    try:
        done = subprocess.run(
            command, input=words, env=dict(environment), text=True, timeout=PATIENCE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
