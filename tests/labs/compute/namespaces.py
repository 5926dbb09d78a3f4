"""Machines for a lab: network namespaces on one bridge. It takes root and iproute2."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

HERE = "10.213.7.1"


def can_be_made() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


@contextmanager
def machines(count: int) -> Iterator[list[tuple[str, ...]]]:
    """What a command begins with to run on each of them; this one is HERE for them."""
    mark = f"sc{os.getpid() % 100_000}"
    with ExitStack() as stack:
        _ip("link", "add", mark, "type", "bridge")
        stack.callback(_ip, "link", "del", mark)
        _ip("addr", "add", f"{HERE}/24", "dev", mark)
        _ip("link", "set", mark, "up")
        yield [_machine(stack, mark, number) for number in range(1, count + 1)]


def _machine(stack: ExitStack, bridge: str, number: int) -> tuple[str, ...]:
    name, cable = f"{bridge}-{number}", f"{bridge}v{number}"
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "del", name)
    _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", cable, "master", bridge, "up")
    _ip("-n", name, "addr", "add", f"10.213.7.{10 + number}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _ip("-n", name, "link", "set", device, "up")
    return ("ip", "netns", "exec", name)


def cut(machine: tuple[str, ...]) -> None:
    """Its cable is pulled: nobody is told."""
    _ip("-n", machine[-1], "link", "set", "eth0", "down")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
