"""An asyncio loop in a thread, for the servers that run beside the tests."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0


class LoopThread:
    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        # The loop itself keeps no task alive.
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_TIMEOUT_S)

    def soon(self, call: Any) -> None:
        self.loop.call_soon_threadsafe(call)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs on its own until it ends or the loop stops. Only from within the loop."""
        self._tasks.add(task := self.loop.create_task(work))
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        self.run(_cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
