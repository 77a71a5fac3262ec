"""Fills in processes that were forked from one that had used PyTorch.

PyTorch's threads do not survive a fork: a child that divides work among them waits forever. Whether they were started
cannot be asked, so a child computes in one thread if its parent had imported flowinpaint and PyTorch. The parent itself
is not changed.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from flowinpaint.errors import InputError

if TYPE_CHECKING:
    import torch

_REMEDY = "start processes with spawn or forkserver"


class _State:
    """used: this process has computed. parent_used: it was forked from a process that had."""

    used = False
    parent_used = False


def check_fork(device: torch.device) -> None:
    """Raise InputError if a computation on this device would wait forever or fail, because of what the parent did.

    A thread that was started after the fork has threads of its own, so only the main thread is restricted.
    """
    import torch

    _State.used = True
    threads = torch.get_num_threads()
    if device.type == "cuda" and torch.cuda._is_in_bad_fork():
        raise InputError(
            'device must be "cpu", because CUDA was used before this process was forked, got '
            f"{str(device)!r}; {_REMEDY} to compute on CUDA"
        )
    if _State.parent_used and threads > 1 and threading.current_thread() is threading.main_thread():
        raise InputError(
            "PyTorch must use one thread, because flowinpaint was used before this process was forked, got "
            f"{threads}; call torch.set_num_threads(1), or {_REMEDY}"
        )


def _continue_in_one_thread() -> None:
    _State.parent_used = _State.parent_used or _State.used
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads") and torch.get_num_threads() > 1:  # else half imported
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_continue_in_one_thread)
