"""A second thread for the work after decoding. FFmpeg and Pillow release the interpreter's lock, so two cores work."""

import threading
from collections.abc import Callable
from queue import Queue
from typing import Generic, TypeVar

T = TypeVar("T")


class PipelineThread(Generic[T]):
    """A queue whose items a thread works on in order. It holds few items, because each is a whole frame."""

    def __init__(self, work: Callable[[T], None], length: int) -> None:
        self._work = work
        self._items: Queue[list[T]] = Queue(length)  # an empty list marks the end
        self._failure: BaseException | None = None  # written by the thread, once
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def put(self, item: T) -> None:
        self._check()
        self._items.put([item])

    def finish(self) -> None:
        """Waits until the last item is done; raises what the thread raised."""
        self._items.put([])
        self._thread.join()
        self._check()

    def __enter__(self) -> "PipelineThread[T]":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._stopping = True
            self._items.put([])
            self._thread.join()

    def _check(self) -> None:
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        while item := self._items.get():
            if self._failure or self._stopping:
                continue  # goes on taking items, so that `put` does not block
            try:
                self._work(item[0])
            except BaseException as failure:  # noqa: BLE001 - `put` and `finish` raise it
                self._failure = failure
