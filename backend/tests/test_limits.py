"""What PyTorch refuses to any device outside of its tree, and what does it."""

import sys

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._higher_order_ops import associative_scan
from torch.autograd import profiler
from torch.nn.attention import flex_attention, varlen
from torch.utils.checkpoint import checkpoint

import _fresh
import _releases
from _rows import read

pytestmark = pytest.mark.one_mode
OTHERS = "schema", "faketensor", "aot_dispatch_dynamic"
ROWS = {k: v for k, v in read("limits").items() if "call" in v}


@torch.library.custom_op("test_limits::double", mutates_args=())
def double(x: Tensor) -> Tensor:
    return x * 2


double.register_fake(torch.empty_like)
double.register_autograd(lambda context, grad: grad * 2)


def aot(function):
    return torch.compile(function, backend="aot_eager")


def names():
    """What the calls of the rows use."""
    from torch._inductor import cudagraph_trees  # which takes seconds
    from torch._inductor.runtime.benchmarking import benchmarker

    return {
        "associative_scan": associative_scan,
        "aot": aot,
        "attention": nn.functional.scaled_dot_product_attention,
        "benchmarker": benchmarker,
        "checkpoint": checkpoint,
        "cudagraph_trees": cudagraph_trees,
        "double": double,
        "drop": lambda x: torch.dropout(x, 0.5, True),
        "emit_nvtx": profiler.emit_nvtx,
        "ends": torch.tensor([0, 1], dtype=torch.int32, device="openreg"),
        "flex_attention": flex_attention.flex_attention,
        "half": torch.ones(64, 64, dtype=torch.float16, device="openreg"),
        "net": nn.Linear(16, 2, device="openreg"),
        "nn": nn,
        "others": [f"test_{x}" for x in OTHERS],
        "torch": torch,
        "varlen_attn": varlen.varlen_attn,
        "x": torch.ones(1, 1, 16, 16, device="openreg", requires_grad=True),
    }


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what is a prototype
@pytest.mark.proves("limits-refused", "limits.*")
@pytest.mark.parametrize("name", ROWS)
def test_what_pytorch_refuses_has_the_row_that_says_so(name):
    row, known = ROWS[name], names()
    if "until" in row and _releases.has(row["until"]):
        eval(row["call"], known)  # no longer
    else:
        with pytest.raises(Exception, match=row["says"]):
            eval(row["call"], known)
    if "works" in row:
        eval(row["works"], known)
    torch._dynamo.reset()


WITHOUT_BACKEND = """
import sys, warnings, torch

warnings.simplefilter("ignore")  # torch.jit is deprecated
try:
    torch.jit.load(sys.argv[1], map_location="cpu")
except RuntimeError as error:
    print(error)
"""


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.proves("limits.load")
def test_what_names_the_device_is_not_read_without_it(tmp_path):
    """The chapter of export tries torch.export.load, which takes seconds."""
    file = str(tmp_path / "net.pt")
    torch.jit.save(torch.jit.script(nn.Linear(2, 2, device="openreg")), file)
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    printed = _fresh.prints(WITHOUT_BACKEND, file, **variables)
    assert "at start of device string: openreg" in printed


def python_of(call, x):
    """The functions of Python that run in a call."""
    found = []

    def note(frame, event, _):
        if event == "call":
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call(x)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.proves("limits.small")
def test_a_graph_that_does_nothing_runs_much_of_python():
    """Which takes its time at each call, whatever compiles."""

    def compile_graph(module, inputs):
        return make_boxed_func(lambda *xs: xs[-1:])

    def chain(x):
        return ((x.sin() * 2 + x).relu() - 1).abs().sqrt()

    compiled = torch.compile(
        chain, backend=aot_autograd(fw_compiler=compile_graph)
    )
    x = torch.ones(3, device="openreg")
    compiled(x)
    assert python_of(chain, x) == ["chain"]
    assert len(python_of(compiled, x)) > 20
    torch._dynamo.reset()
