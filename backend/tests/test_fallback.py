"""The CPU fallback: counted, warned about, forbidden, and its refusals."""

from __future__ import annotations

import warnings
from functools import partial

import pytest
import torch

import torch_openreg._C as _C
from _tensors import ascending

LIBRARY = "openreg_fallback_test"
fallback = torch.openreg.fallback
numbers = partial(ascending, first=1.0)


def double_and_add(x, y):
    """Reads `y` after it has written `x`, which may be the same tensor."""
    return x.mul_(2).add_(y)


def bump(*tensors):
    for x in tensors:
        x.add_(1)


def draw(x, *, generator=None):
    return torch.rand(x.shape, generator=generator)


def twice_twice(x, y):
    """Calls an operator of the device in between."""
    again = numbers(2)
    return ops().twice(again).cpu() + x + y


def grow(x):
    x.resize_(4).fill_(1)


def thrice_in_a_row(x, out):
    """Takes `out` for contiguous, as some of PyTorch's own kernels do."""
    torch.mul(x, 3, out=out.as_strided(x.shape, (x.shape[1], 1)))
    return out


def fail(x):
    x.add_(1)
    raise ZeroDivisionError


KERNELS = {
    "twice(Tensor x) -> Tensor": lambda x: x * 2,
    "twice_(Tensor(a!) x) -> Tensor(a!)": lambda x: x.mul_(2),
    "twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)": (
        lambda x, out: torch.mul(x, 2, out=out)
    ),
    "thrice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)": thrice_in_a_row,
    "bump_(Tensor(a!) x) -> ()": bump,
    "grow_(Tensor(a!) x) -> ()": grow,
    "twice_twice(Tensor x, Tensor y) -> Tensor": twice_twice,
    "row(Tensor(a) x) -> Tensor(a)": lambda x: x[0],
    "total(Tensor[] xs) -> Tensor": lambda xs: torch.stack(xs).sum(0),
    "pick(Tensor x, Tensor?[] ys) -> Tensor": (
        lambda x, ys: sum((y for y in ys if y is not None), x.clone())
    ),
    "maybe(Tensor x, Tensor? y) -> Tensor": (
        lambda x, y: x.clone() if y is None else x + y
    ),
    "halves(Tensor x) -> Tensor[]": lambda x: [h.clone() for h in x.chunk(2)],
    "add_twice_(Tensor(a!) x, Tensor y) -> Tensor(a!)": double_and_add,
    "bump_all_(Tensor(a!)[] xs) -> ()": lambda xs: bump(*xs),
    "draw(Tensor x, *, Generator? generator=None) -> Tensor": draw,
    "ones_on(Tensor x, Device? device=None) -> Tensor": (
        lambda x, device=None: torch.ones_like(x, device=device)
    ),
    "fail_(Tensor(a!) x) -> ()": fail,
    "packed(Tensor x) -> Tensor": lambda x: x.to_mkldnn(),
}


@pytest.fixture(scope="module", autouse=True)
def operators():
    """Operators that only the CPU has a kernel for."""
    library = torch.library.Library(LIBRARY, "DEF")
    for schema, kernel in KERNELS.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, "CPU")
    yield
    library._destroy()


@pytest.fixture(autouse=True)
def allow_all_afterwards():
    yield
    fallback.allow()


def ops():
    return getattr(torch.ops, LIBRARY)


def on_both(work):
    """What `work` gives on the CPU and on the device, from equal seeds."""
    found = []
    for device in ("cpu", "openreg"):
        torch.manual_seed(1)
        found.append(work(device))
    return found


def check_equal(work) -> None:
    expected, result = on_both(work)
    assert result.device.type == "openreg"
    assert result.stride() == expected.stride()
    assert torch.equal(result.cpu(), expected)


class TestPolicy:
    def test_it_runs_on_the_host_and_is_counted(self) -> None:
        x = numbers(2)
        y = ops().twice(x)
        assert y.device == x.device
        assert y.cpu().tolist() == [2, 4]
        ops().twice(x)
        assert fallback.counts() == {f"{LIBRARY}::twice": 2}
        fallback.reset()
        assert fallback.counts() == {}

    def test_it_warns_once_an_operator(self, capfd) -> None:
        # Calls through torch.ops have no Python frame to warn in, so PyTorch
        # writes the warning to standard error.
        x = numbers(1)
        warning = f"'{LIBRARY}::twice' has no kernel for the device and runs on"
        ops().twice(x)
        with fallback.warn():
            ops().twice(x)
            ops().twice(x)
            assert capfd.readouterr().err.count(warning) == 1
            fallback.reset()
            ops().twice(x)
            assert capfd.readouterr().err.count(warning) == 1
        fallback.reset()
        ops().twice(x)
        assert warning not in capfd.readouterr().err

    def test_it_warns_of_the_operators_that_are_named(self, capfd) -> None:
        with fallback.warn(f"{LIBRARY}::twice_"):
            ops().twice(numbers(1))
            ops().twice_(numbers(1))
        err = capfd.readouterr().err
        assert err.count("has no kernel for the device") == 1
        assert f"'{LIBRARY}::twice_'" in err

    @pytest.mark.proves("fallback-forbidden")
    def test_forbidden_it_raises_and_counts_nothing(self) -> None:
        x = numbers(1)
        with (
            fallback.forbid(),
            pytest.raises(NotImplementedError, match=f"{LIBRARY}::twice"),
        ):
            ops().twice(x)
        assert fallback.counts() == {}
        assert ops().twice(x).item() == 2

    def test_some_operators_are_forbidden(self) -> None:
        x = numbers(2)
        with fallback.forbid(f"{LIBRARY}::twice_", f"{LIBRARY}::total"):
            with pytest.raises(NotImplementedError, match="::twice_' has no"):
                ops().twice_(x)
            with pytest.raises(NotImplementedError, match="::total' has no"):
                ops().total([x])
            assert ops().twice(x).tolist() == [2, 4]
        assert ops().twice_(x).tolist() == [2, 4]

    def test_a_name_stands_for_its_overloads(self) -> None:
        x = numbers(1)
        with fallback.forbid(f"{LIBRARY}::twice"):
            for out in {}, {"out": torch.empty_like(x)}:
                with pytest.raises(NotImplementedError, match="forbids"):
                    ops().twice(x, **out)
            ops().twice_(x)
        with fallback.forbid(f"{LIBRARY}::twice.out"):
            ops().twice(x)
            with pytest.raises(NotImplementedError, match=r"::twice\.out'"):
                ops().twice(x, out=torch.empty_like(x))

    def test_all_but_some_are_forbidden(self) -> None:
        x = numbers(1)
        with fallback.forbid(), fallback.allow(f"{LIBRARY}::twice"):
            ops().twice(x)
            with pytest.raises(NotImplementedError, match="::twice_' has no"):
                ops().twice_(x)

    def test_without_a_name_it_replaces_what_was_said_of_single_ones(
        self,
    ) -> None:
        fallback.forbid(f"{LIBRARY}::twice")
        with fallback.allow():
            ops().twice(numbers(1))
        with pytest.raises(NotImplementedError, match="forbids"):
            ops().twice(numbers(1))

    def test_a_policy_lasts_for_its_block_also_after_an_error(self) -> None:
        x = numbers(1)
        with pytest.raises(ZeroDivisionError), fallback.forbid():
            raise ZeroDivisionError
        ops().twice(x)
        fallback.forbid()
        with fallback.allow():
            ops().twice(x)
        with pytest.raises(NotImplementedError):
            ops().twice(x)

    def test_an_unknown_operator_is_refused(self) -> None:
        before = _C._fallback_policy()
        for name in "aten::no_such", "twice", f"{LIBRARY}::twice.no_such":
            with pytest.raises(ValueError, match=f"There is no .*'{name}'"):
                fallback.forbid("aten::add", name)
        assert _C._fallback_policy() == before
        fallback.forbid("aten::add")
        assert _C._fallback_policy() == ("allow", {"aten::add": "forbid"})

    @pytest.mark.proves("messages.expected-allow")
    def test_an_unknown_word_is_refused(self) -> None:
        for policy in ("off", {}), ("allow", {"aten::add": "off"}):
            with pytest.raises(ValueError, match="'off'; expected 'allow', "):
                _C._set_fallback_policy(policy)


class TestArguments:
    @pytest.mark.proves("fallback.arguments.strides")
    def test_strides(self) -> None:
        check_equal(lambda d: ops().twice(numbers(2, 3, device=d).t()))
        check_equal(lambda d: ops().twice(numbers(1, 3, device=d).expand(2, 3)))
        check_equal(lambda d: ops().twice(numbers(0, 3, device=d)))
        check_equal(lambda d: ops().twice(numbers(1, device=d)[0]))

    @pytest.mark.proves("fallback.arguments.bits")
    def test_conjugate_and_negative_views(self) -> None:
        z = torch.tensor([1 + 2j])
        check_equal(lambda d: ops().twice(z.to(d).conj()))
        check_equal(lambda d: ops().twice(z.to(d).conj().imag))

    @pytest.mark.proves("fallback.arguments.zero")
    def test_a_zero_tensor(self) -> None:
        check_equal(
            lambda d: ops().twice(torch._efficientzerotensor(2, device=d))
        )

    @pytest.mark.proves("fallback.arguments.optional")
    def test_an_optional_tensor(self) -> None:
        check_equal(lambda d: ops().maybe(numbers(2, device=d), None))
        check_equal(
            lambda d: ops().maybe(numbers(2, device=d), numbers(2, device=d))
        )

    @pytest.mark.proves("fallback.arguments.number")
    def test_a_number_from_the_host(self) -> None:
        check_equal(
            lambda d: ops().maybe(numbers(2, device=d), torch.tensor(3.0))
        )

    @pytest.mark.proves("fallback.arguments.lists")
    def test_lists(self) -> None:
        check_equal(lambda d: ops().total([numbers(2, device=d)] * 2))
        check_equal(
            lambda d: ops().pick(
                numbers(2, device=d), [None, numbers(2, device=d)]
            )
        )
        for half in 0, 1:
            check_equal(lambda d, h=half: ops().halves(numbers(4, device=d))[h])

    def test_a_list_as_torchscript_makes_it(self) -> None:
        script = torch.jit.CompilationUnit(
            "def pick(x: Tensor):\n"
            f"  return torch.ops.{LIBRARY}.pick(x, [None, x])\n"
        )
        check_equal(lambda d: script.pick(numbers(2, device=d)))

    @pytest.mark.proves("fallback.arguments.device")
    def test_a_device(self) -> None:
        x = numbers(2)
        assert ops().ones_on(x, torch.device("openreg")).device == x.device
        assert ops().ones_on(x, torch.device("cpu")).device.type == "cpu"

    def test_the_result_is_on_the_device_of_the_arguments(self) -> None:
        assert ops().twice(numbers(2, device="openreg:1")).get_device() == 1
        assert torch.openreg.current_device() == 0

    def test_another_stream(self, side) -> None:
        x = torch.zeros(3, device="openreg")
        x.fill_(4)
        y = ops().twice(x)
        ops().twice_(y)
        y += 1
        assert y.tolist() == [17, 17, 17]

    def test_a_kernel_that_falls_back_itself(self) -> None:
        def work(device):
            x = numbers(2, device=device)
            return ops().twice_twice(x, x)

        check_equal(work)
        name = f"{LIBRARY}::twice"
        # The CPU's run called it, too.
        assert fallback.counts() == {f"{name}_twice": 1, name: 2}

    def test_copies_can_be_had_without_a_fallback(self) -> None:
        x = numbers(2)
        one, other = torch.ops.aten._to_cpu([x, x])
        assert one.tolist() == other.tolist() == [1, 2]
        assert one.device.type == "cpu"


class TestWriting:
    def test_in_place(self) -> None:
        x = numbers(2)
        assert ops().twice_(x) is x
        assert x.cpu().tolist() == [2, 4]

    @pytest.mark.proves("fallback.arguments.in_place")
    def test_in_place_through_strides(self) -> None:
        def work(device):
            x = numbers(3, 4, device=device)
            ops().bump_(x.t()[1])
            ops().bump_(x[:, ::2])
            return x

        check_equal(work)

    def test_out(self) -> None:
        def work(device):
            base = torch.zeros(3, 4, device=device)
            out = base[:, ::2]
            assert ops().twice(numbers(2, 3, device=device).t(), out=out) is out
            return base

        check_equal(work)

    @pytest.mark.proves("fallback.arguments.out")
    def test_out_is_resized(self) -> None:
        check_equal(
            lambda d: ops().twice(
                numbers(2, 3, device=d), out=torch.empty(0, device=d)
            )
        )

    @pytest.mark.proves("fallback.arguments.out_strided")
    def test_out_may_have_any_strides(self) -> None:
        x = numbers(2, 3)
        out = torch.zeros(3, 2, device="openreg").t()
        assert ops().thrice(x, out=out) is out
        assert out.stride() == (1, 2)
        assert out.tolist() == [[3, 6, 9], [12, 15, 18]]

    def test_in_place_it_is_resized(self) -> None:
        x = numbers(2)
        ops().grow_(x)
        assert x.tolist() == [1, 1, 1, 1]

    def test_in_inference_mode(self) -> None:
        with torch.inference_mode():
            self.test_in_place()
            self.test_out_is_resized()
            self.test_in_place_it_is_resized()

    @pytest.mark.proves("fallback.arguments.out_list")
    def test_a_list(self) -> None:
        x, y = numbers(2), numbers(3)
        ops().bump_all_([x, y, x])
        assert (x.tolist(), y.tolist()) == ([3, 4], [2, 3, 4])

    @pytest.mark.proves("fallback.arguments.twice")
    @pytest.mark.parametrize("same", [lambda x: x, lambda x: x.view(4)])
    def test_an_argument_that_is_passed_twice(self, same) -> None:
        def work(device):
            x = numbers(4, device=device)
            return ops().add_twice_(x, same(x))

        check_equal(work)
        assert ops().add_twice_(numbers(1), numbers(1)).item() == 3

    @pytest.mark.proves("fallback.refusals.overlap")
    def test_arguments_that_overlap_in_part_are_refused(self) -> None:
        x = numbers(3)
        with pytest.raises(RuntimeError, match=r"Please clone\(\) the tensor"):
            ops().add_twice_(x[1:], x[:-1])
        with pytest.raises(RuntimeError, match=r"Please clone\(\) the tensor"):
            ops().bump_all_([x[1:], x[:-1]])
        assert x.tolist() == [1, 2, 3]
        assert fallback.counts() == {}

    @pytest.mark.proves("fallback.refusals.itself")
    def test_a_tensor_that_overlaps_itself_is_refused(self) -> None:
        x = numbers(1, 2)
        with pytest.raises(RuntimeError, match=r"Please clone\(\) the tensor"):
            ops().bump_(x.expand(3, 2))
        assert x.tolist() == [[1, 2]]

    def test_a_kernel_that_fails_leaves_its_arguments(self) -> None:
        x = numbers(2)
        with pytest.raises(ZeroDivisionError):
            ops().fail_(x)
        assert x.tolist() == [1, 2]


class TestAutograd:
    def test_a_gradient_goes_through(self) -> None:
        x = numbers(2).requires_grad_()
        y = ops().twice(x)
        with warnings.catch_warnings():
            # "an autograd kernel was not registered", on any device.
            warnings.simplefilter("ignore")
            y.sum().backward()
        assert x.grad.tolist() == [2, 2]

    @pytest.mark.proves("fallback.arguments.gradient")
    def test_a_gradient_goes_through_what_is_written(self) -> None:
        x = numbers(2).requires_grad_()
        y = x * 3
        ops().add_twice_(y, x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y.sum().backward()
        assert x.grad.tolist() == [7, 7]

    @pytest.mark.proves("fallback.refusals.leaf")
    def test_a_leaf_is_not_written(self) -> None:
        x = numbers(2).requires_grad_()
        with pytest.raises(RuntimeError, match="a leaf Variable that requires"):
            ops().bump_(x)
        assert x.is_leaf
        assert x.tolist() == [1, 2]

    def test_writing_is_a_new_version(self) -> None:
        x = numbers(2).requires_grad_()
        y = x.exp()
        with torch.no_grad():
            ops().bump_(y)
        assert y._version == 1
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            y.sum().backward()


class TestGenerators:
    @pytest.mark.proves("fallback.arguments.generator")
    def test_the_devices_own_draws(self) -> None:
        check_equal(lambda d: ops().draw(numbers(4, device=d)))
        state = torch.get_rng_state()
        ops().draw(numbers(4))
        assert torch.equal(torch.get_rng_state(), state)

    def test_one_that_is_given_draws(self) -> None:
        check_equal(
            lambda d: ops().draw(
                numbers(4, device=d),
                generator=torch.Generator(d).manual_seed(5),
            )
        )

    @pytest.mark.proves("fallback.refusals.generator")
    @pytest.mark.parametrize(
        ("device", "says"),
        [
            ("cpu", "Expected a 'openreg' device type for generator"),
            ("openreg:1", "Expected a 'openreg:0' generator device"),
        ],
    )
    def test_one_of_another_device_is_refused(self, device, says) -> None:
        with pytest.raises(RuntimeError, match=says):
            ops().draw(numbers(4), generator=torch.Generator(device))


class TestRefusals:
    @pytest.mark.proves("fallback-refuses", "fallback.refusals.view")
    def test_a_view_operator(self) -> None:
        x = numbers(2, 2)
        with pytest.raises(NotImplementedError, match="cannot make a view"):
            ops().row(x)
        assert fallback.counts() == {}

    @pytest.mark.proves("fallback.refusals.devices")
    @pytest.mark.parametrize("other", ["cpu", "openreg:1"])
    def test_tensors_on_two_devices(self, other) -> None:
        x, y = numbers(2), numbers(2, device=other)
        for call in (
            lambda: ops().total([x, y]),
            lambda: ops().maybe(x, y),
            lambda: ops().pick(x, [y]),
        ):
            with pytest.raises(RuntimeError, match="to be on the same device"):
                call()
        assert fallback.counts() == {}
        assert ops().total([x, x]).cpu().tolist() == [2, 4]

    @pytest.mark.proves("fallback.refusals.host")
    def test_writing_to_a_number_on_the_host(self) -> None:
        with pytest.raises(RuntimeError, match="to be on the same device"):
            ops().add_twice_(torch.tensor(3.0), numbers(1)[0])

    @pytest.mark.proves("fallback-hidden-draws", "fallback.refusals.draw")
    def test_a_draw_that_takes_no_generator(self) -> None:
        library = torch.library.Library(LIBRARY + "_hidden", "DEF")
        tags = (torch.Tag.nondeterministic_seeded,)
        library.define("noise(Tensor x) -> Tensor", tags=tags)
        library.impl("noise", torch.rand_like, "CPU")
        noise = getattr(torch.ops, LIBRARY + "_hidden").noise
        state = torch.get_rng_state()
        with pytest.raises(NotImplementedError, match="takes no generator"):
            noise(numbers(2))
        assert torch.equal(torch.get_rng_state(), state)
        library._destroy()

    @pytest.mark.proves("fallback.refusals.sparse")
    def test_sparse_tensors(self) -> None:
        x = numbers(2, 2)
        with pytest.raises(
            NotImplementedError,
            match=f"Could not run '{LIBRARY}::twice' with arguments from the "
            "'Sparseopenreg' backend",
        ):
            ops().twice(x.to_sparse())
        assert ops().twice(x).sum().item() == 20

    @pytest.mark.proves("fallback.refusals.layout")
    def test_results_that_cannot_be_on_the_device(self) -> None:
        with pytest.raises(
            NotImplementedError,
            match="Unsupported device type for mkldnn layout: openreg",
        ):
            ops().packed(numbers(2, 2))

    @pytest.mark.proves("fallback.refusals.zero")
    def test_zero_tensors_are_not_written(self) -> None:
        with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
            ops().bump_(torch._efficientzerotensor(2, device="openreg"))


@pytest.mark.proves("inside-models")
def test_everyday_training_never_falls_back() -> None:
    with fallback.forbid():
        net = torch.nn.Linear(3, 2).to("openreg")
        loss = net(torch.ones(4, 3, device="openreg")).square().mean()
        loss.backward()
        torch.optim.AdamW(net.parameters()).step()
