"""A process that is sent tensors, and does with them what it is told."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from _device import PATIENCE


def _serve(pipe: Connection) -> None:
    names: dict[str, Any] = {}
    while True:
        try:
            code, objects = pipe.recv()
            names.update(objects)
            del objects
            exec(code, names)
            answer = names.pop("answer", None)
        except EOFError:
            return
        except Exception as error:
            answer = error
        try:
            pipe.send(answer)
        except Exception as error:
            pipe.send(error)
        del answer


class Consumer:
    """Calls run code in the process, which keeps all names in between.

    An error there is raised here; what the code assigns to `answer` comes back.
    """

    def __init__(self) -> None:
        start = multiprocessing.get_context("forkserver")
        start.set_forkserver_preload(["torch"])  # which takes seconds
        self.pipe, theirs = start.Pipe()
        self.process = start.Process(target=_serve, args=(theirs,))
        self.process.start()
        theirs.close()

    def __call__(self, code: str, **objects: Any) -> Any:
        self.pipe.send((code, objects))
        del objects
        assert self.pipe.poll(PATIENCE), "the consumer does not answer"
        answer = self.pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.pipe.close()
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
