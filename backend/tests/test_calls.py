"""torch.openreg.show_calls: a line for each call, before it is made."""

from __future__ import annotations

import io

import pytest
import torch

from _fresh import prints, run, without_kernel

F = torch.nn.functional
lab = torch.library.Library("calls_lab", "DEF")
lab.define("thirds(Tensor x) -> Tensor")
lab.impl("thirds", lambda x: x / 3, "CPU")
lab.define("nowhere(Tensor x) -> Tensor")


def ones(*shape: int, device: str = "openreg") -> torch.Tensor:
    return torch.ones(shape, device=device)


def lines(file: io.StringIO) -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in file.getvalue().splitlines()]


def names(file: io.StringIO) -> list[str]:
    """The operators, with the indentation that says who called them."""
    return [
        line.split(" Priv")[0].rstrip() for line in file.getvalue().splitlines()
    ]


@pytest.fixture
def file() -> io.StringIO:
    return io.StringIO()


def test_a_line_has_operator_key_path_device_and_stream(file) -> None:
    x = ones(2)
    with torch.openreg.show_calls(file):
        x + x
    place = ("openreg:0", "stream", "0")
    assert lines(file) == [
        ("aten::add.Tensor", "PrivateUse1", "native", *place)
    ]


@pytest.mark.parametrize(
    ("call", "operator", "path"),
    [
        (lambda x: x * x, "aten::mul.Tensor", "native"),
        (lambda x: x.cumsum(0), "aten::cumsum", "alias"),
        (lambda x: x.expand(2, 2), "aten::expand", "default"),
        (torch.ops.calls_lab.thirds, "calls_lab::thirds", "fallback"),
        (
            lambda x: torch.empty(2, device=x.device),
            "aten::empty.memory_format",
            "native",
        ),
    ],
)
def test_the_path_in_a_word(file, call, operator: str, path: str) -> None:
    x = ones(2)
    with torch.openreg.show_calls(file):
        call(x)
    assert lines(file)[0][:3] == (operator, "PrivateUse1", path)


def test_a_kernel_in_python_is_native(file) -> None:
    library = torch.library.Library("calls_lab", "IMPL")
    library.impl("thirds", lambda x: x * (1 / 3), "PrivateUse1")
    x = ones(2)
    with torch.openreg.show_calls(file):
        torch.ops.calls_lab.thirds(x)
    library._destroy()
    assert lines(file)[0][2] == "native"


def test_what_a_default_kernel_calls_is_indented(file) -> None:
    x = ones(2, 3)
    with torch.openreg.show_calls(file):
        torch.zeros(2, device="openreg:1")
        F.linear(x, x)
    assert names(file) == [
        "aten::zeros",
        "  aten::empty.memory_format",
        "  aten::zero_",
        "aten::t",
        "  aten::transpose.int",
        "    aten::as_strided",
        "aten::mm",
    ]
    assert {line[3] for line in lines(file)[:3]} == {"openreg:1"}


@pytest.mark.one_mode
def test_a_default_kernel_that_got_a_number_for_a_tensor_is_called() -> None:
    code = """
    import torch
    x = torch.full((2,), 3, device="openreg", dtype=torch.uint8)
    with torch.openreg.show_calls():
        results = x * 2, torch.mul(x, other=0.5), x.mul_(2)
    print([(y.dtype, y.tolist()) for y in results])
    """
    *shown, results = prints(code, OPENREG_OPERATORS="minimal").splitlines()
    assert [line.split()[::2][:2] for line in shown] == [
        ["aten::mul.Tensor", "default"],
        ["aten::mul.Tensor", "default"],
        ["aten::mul_.Tensor", "default"],
    ]
    assert results == (
        "[(torch.uint8, [6, 6]), (torch.float32, [1.5, 1.5]), "
        "(torch.uint8, [6, 6])]"
    )


def test_a_copy_names_the_device_at_either_end(file) -> None:
    x = ones(2)
    with torch.openreg.show_calls(file):
        x.cpu()
        torch.ones(2).to("openreg")
    copies = [line for line in lines(file) if line[0] == "aten::_copy_from"]
    assert [line[1:4] for line in copies] == [
        ("PrivateUse1", "native", "openreg:0")
    ] * 2
    hosts = [line for line in lines(file) if line[0] == "aten::empty_strided"]
    assert [line[1:] for line in hosts] == [
        ("CPU", "native", "cpu"),
        ("PrivateUse1", "native", "openreg:0", "stream", "0"),
    ]


def test_sparse_tensors_have_a_key_of_their_own(file) -> None:
    sparse = ones(2, 2).to_sparse()
    with torch.openreg.show_calls(file):
        sparse @ ones(2, 2)
        torch.zeros(2, device="openreg", layout=torch.sparse_coo)
    keys = {line[0]: line[1:3] for line in lines(file)}
    assert keys["aten::mm"] == ("SparsePrivateUse1", "alias")
    assert keys["aten::zeros"] == ("SparsePrivateUse1", "default")


def test_backward_passes_are_shown_on_the_stream_of_the_forward(file) -> None:
    x = ones(2, 2).requires_grad_()
    side = torch.openreg.Stream()
    with torch.openreg.show_calls(file):
        with torch.openreg.stream(side):
            loss = (x @ x).sum()
        loss.backward()
    torch.accelerator.synchronize()
    products = [line for line in lines(file) if line[0] == "aten::mm"]
    assert len(products) == 3
    assert {line[-1] for line in products} == {str(side.stream_id)}
    assert x.grad is not None
    assert torch.equal(x.grad.cpu(), torch.full((2, 2), 4.0))


def test_each_of_two_nested_ones_gets_every_call(file) -> None:
    inner, x = io.StringIO(), ones(2)
    with torch.openreg.show_calls(file), torch.openreg.show_calls(inner):
        x.sum()
        x + x
    assert names(file) == [
        "aten::sum",
        "  aten::sum.dim_IntList",
        "aten::add.Tensor",
    ]
    assert names(inner) == ["aten::sum", "aten::add.Tensor"]


@pytest.mark.proves("calls-last-line")
def test_the_last_line_is_the_call_that_failed(file) -> None:
    x = ones(2, 3)
    with (
        pytest.raises(RuntimeError, match="cannot be multiplied"),
        torch.openreg.show_calls(file),
    ):
        F.linear(x, x.t())
    assert names(file)[-1] == "aten::mm"
    with torch.openreg.show_calls(file):  # and begins at the margin
        torch.zeros(1, device="openreg")
    assert names(file)[-3:] == [
        "aten::zeros",
        "  aten::empty.memory_format",
        "  aten::zero_",
    ]


def test_an_error_below_a_default_kernel_ends_the_indentation(file) -> None:
    x = ones(2, 3)
    shown = torch.openreg.show_calls(file)
    with shown:
        with pytest.raises(RuntimeError, match="expand"):
            x.clone().expand(5, 5)
        x + x
    assert names(file)[-1] == "aten::add.Tensor"


def test_an_operator_without_a_kernel_is_named_before_it_fails(file) -> None:
    with pytest.raises(NotImplementedError), torch.openreg.show_calls(file):
        torch.ops.calls_lab.nowhere(ones(2))
    assert lines(file)[-1][:3] == (
        "calls_lab::nowhere",
        "PrivateUse1",
        "fallback",
    )
    with pytest.raises(NotImplementedError), torch.openreg.show_calls(file):
        torch.ops.calls_lab.nowhere(ones(2, device="cpu"))
    assert lines(file)[-1] == ("calls_lab::nowhere", "CPU", "none", "cpu")


@pytest.mark.proves("calls-same-results")
def test_results_are_the_same_while_calls_are_shown(file) -> None:
    def work() -> list[torch.Tensor]:
        torch.manual_seed(0)
        x = torch.randn(4, 4, device="openreg", requires_grad=True)
        y = F.layer_norm(x.abs().t(), (4,)).softmax(0)
        y.square().sum().backward()
        out = torch.empty(0, device="openreg")
        torch.mm(y.detach(), x.detach(), out=out)
        view = out.view(16)[2:]
        view.fill_(3)
        assert x.grad is not None
        return [y.detach().cpu(), x.grad.cpu(), out.cpu()]

    expected = work()
    with torch.openreg.show_calls(file):
        found = work()
    assert all(map(torch.equal, found, expected))


def test_standard_output_is_the_default(capsys) -> None:
    x = ones(2)
    with torch.openreg.show_calls():
        x + x
    assert capsys.readouterr().out.startswith("aten::add.Tensor ")


@pytest.mark.one_mode
def test_showing_calls_elsewhere_leaves_the_backend_asleep() -> None:
    assert prints(
        """
        import torch
        with torch.openreg.show_calls():
            torch.ones(1)
        assert not torch.openreg.is_initialized()
        """
    ).splitlines()[0].split() == ["aten::ones", "CPU", "default", "cpu"]


@pytest.mark.one_mode
@pytest.mark.parametrize("key", ["Conjugate", "Negative"])
def test_a_copy_without_its_fallthrough_overflows_the_stack(key: str) -> None:
    view = "torch.tensor([1 + 2j], device='openreg').conj()"
    view += ".imag" if key == "Negative" else ""
    code = f"import torch; print({view}.clone().tolist())"
    omission = without_kernel(f"{key}:_copy_from")
    assert run(code, **omission).returncode == -11
