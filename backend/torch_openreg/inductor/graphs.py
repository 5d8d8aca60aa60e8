"""mode="reduce-overhead": a compiled graph as a graph of the device."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config
from torch._inductor.cudagraph_utils import CUDAGraphPolicy
from torch._inductor.output_code import CompiledFxGraph, OutputCode
from torch.multiprocessing.reductions import StorageWeakRef

from torch_openreg import openreg

Run = Callable[[list[Any]], Any]
# So often a graph is captured anew for other addresses, before it is given up.
_MOST_CAPTURES = 8


def _tensors(values: list[Any]) -> list[tuple[int, Tensor]]:
    return [(i, v) for i, v in enumerate(values) if isinstance(v, Tensor)]


def _like(tensor: Tensor) -> Tensor:
    shape, strides = tensor.shape, tensor.stride()
    return torch.empty_strided(
        shape, strides, dtype=tensor.dtype, device=tensor.device
    )


def _users(tensor: Tensor) -> int:
    storage = tensor.untyped_storage()
    return int(torch._C._storage_Use_Count(storage._cdata))


# [py-graphs-capture] A capture, and the inputs that it relies on.
class _Capture:
    """A compiled graph, captured with these inputs.

    Those in `copied` come from elsewhere each time, and are copied to where
    the graph reads them. The others must be where they are now.
    """

    def __init__(self, run: Run, inputs: list[Any], copied: set[int]) -> None:
        places = [_like(x) if i in copied else x for i, x in enumerate(inputs)]
        self.copies = {i: places[i] for i in copied}
        self.kept = [
            (i, t.data_ptr(), StorageWeakRef(t.untyped_storage()))
            for i, t in _tensors(inputs)
            if i not in copied
        ]
        self.graph = torch.accelerator.Graph()
        with torch.Stream("openreg"), self.graph:
            outputs = list(run(list(places)))
        # An input that is handed on is the caller's own.
        found = {id(t): i for i, t in _tensors(places)}
        self.same = {k: found.get(id(x)) for k, x in enumerate(outputs)}
        self.outputs = [
            None if self.same[k] is not None else x
            for k, x in enumerate(outputs)
        ]
        del outputs, places
        self.users = [_users(t) for _, t in _tensors(self.outputs)]

    # [/py-graphs-capture]

    # [py-graphs-moved] Which inputs have moved since the capture.
    def moved(self, inputs: list[Any]) -> set[int]:
        """The inputs that are no longer where the graph reads them."""
        return {
            i
            for i, address, storage in self.kept
            if inputs[i].data_ptr() != address or storage.expired()
        }

    def held(self) -> set[int]:
        """The outputs of the last launch that somebody still has."""
        now = _tensors(self.outputs)
        return {
            i
            for (i, t), users in zip(now, self.users, strict=True)
            if _users(t) > users
        }

    # [/py-graphs-moved]


# [py-graphs-replayed] Takes the place of a compiled graph, on one stream.
class _Replayed:
    def __init__(self, run: Run, code: CompiledFxGraph) -> None:
        self.run = run
        self.mutated = code.mutated_input_idxs
        # A backward pass waits until the results of the forward one, which it
        # reads, have found their places.
        self.warm_ups = 3 if code.fx_kwargs["is_backward"] else 1
        self.capture: _Capture | None = None
        self.captures = 0
        self.copied: set[int] = set()
        self.cloned: set[int] = set()
        self.last: dict[int, int] = {}

    def __call__(self, inputs: list[Any]) -> Any:
        if self.warm_ups:
            self.warm_ups -= 1
            self.last = {i: t.data_ptr() for i, t in _tensors(inputs)}
            return self.run(inputs)
        if self.captures > _MOST_CAPTURES:
            return self.run(inputs)
        if self.is_as_captured(inputs) or self.capture_again(inputs):
            return self.launch(inputs)
        return self.run(inputs)

    def is_as_captured(self, inputs: list[Any]) -> bool:
        """Whether the capture can be launched; what moves, is copied then."""
        if self.capture is None:
            self.copied |= {
                i for i, t in _tensors(inputs) if t.data_ptr() != self.last[i]
            }
            return False
        moved, held = self.capture.moved(inputs), self.capture.held()
        self.copied |= moved
        self.cloned |= held
        return not moved and not held

    # [/py-graphs-replayed]

    # [py-graphs-launch] A capture that fails is not tried again.
    def capture_again(self, inputs: list[Any]) -> bool:
        self.capture = None
        self.captures += 1
        if self.captures > _MOST_CAPTURES:
            _warn("its tensors are elsewhere at each call")
            return False
        try:
            self.capture = _Capture(self.run, inputs, self.copied)
        except RuntimeError as error:
            self.captures = _MOST_CAPTURES + 1
            _warn(str(error))
        return self.capture is not None

    def launch(self, inputs: list[Any]) -> list[Any]:
        capture = self.capture
        assert capture is not None
        for i, place in capture.copies.items():
            place.copy_(inputs[i])
        capture.graph.replay()
        for i in self.mutated & capture.copies.keys():
            inputs[i].copy_(capture.copies[i])
        results = list(capture.outputs)
        for i, tensor in _tensors(results):
            results[i] = tensor.clone() if i in self.cloned else tensor.detach()
        for i, same in capture.same.items():
            results[i] = results[i] if same is None else inputs[same]
        inputs.clear()
        return results

    # [/py-graphs-launch]


# [py-graphs-policy] Inductor calls this with each compiled graph.
class GraphPolicy(CUDAGraphPolicy):
    def wrap_output(self, output_code: Any) -> Any:
        code: OutputCode = output_code
        if (
            config.triton.cudagraphs
            and isinstance(code, CompiledFxGraph)
            and "openreg" in code.device_types
        ):
            others = sorted(code.device_types - {"openreg"})
            ours = [f"openreg:{index}" for index in sorted(code.device_idxs)]
            if len(places := others + ours) > 1:
                _warn(f"it is of more than one device: {', '.join(places)}")
            else:
                code.current_callable = _by_stream(code)
        return output_code


def _by_stream(code: CompiledFxGraph) -> Run:
    """A graph for each stream and each size: their results are in one place."""
    run, lock = code.current_callable, threading.Lock()
    assert run is not None
    replayed: dict[Any, _Replayed] = {}

    def call(inputs: list[Any]) -> Any:
        stream = openreg.current_stream().stream_id
        sizes = [x for x in inputs if not isinstance(x, Tensor)]
        with lock:
            graph = replayed.setdefault((stream, *sizes), _Replayed(run, code))
            return graph(inputs)

    return call


# [/py-graphs-policy]


def _warn(why: str) -> None:
    warnings.warn(
        "openreg: mode='reduce-overhead' runs a compiled graph without a "
        f"graph of the device: {why}",
        stacklevel=2,
    )
