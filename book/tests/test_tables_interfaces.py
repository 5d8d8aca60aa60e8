"""PyTorch's interfaces: read whole, and each method spoken of and tested."""

import ast

import pytest

import regions
from tables import interfaces, virtuals

TESTS = regions.ROOT / "backend" / "tests"

HEADER = """
struct Earlier;
class TORCH_API Iface : public Base {
 public:
  virtual ~Iface() = default;
  // virtual void commented(int x) = 0;
  virtual bool must([[maybe_unused]] int a = -1) const = 0;
  virtual std::pair<int, int> does(Pool pool = {0, 0}) {
    TORCH_CHECK(false, "not here: https://", "a { b");
  }
  virtual void nothing(void* /*ptr*/) {}
#define FAIL(x) \\
  virtual void in_macro();
  bool again() const override {
    return false;
  }
  virtual int elsewhere() const;
  void plain() { inner([] { return virtual_; }); }
  struct Nested { int x; };
  int member_{0};
 private:
  virtual T* hidden(std::function<bool(int)> f) { return nullptr; }
};
"""


def test_a_header_is_read_as_the_compiler_reads_it() -> None:
    found = virtuals.virtual_methods(HEADER, "Iface")
    assert {name: virtuals.default(m) for name, m in found.items()} == {
        "must": "does not compile",
        "does": 'raises "not here: https://a { b"',
        "nothing": "does nothing",
        "again": "says no",
        "elsewhere": "does what PyTorch's library has",
        "hidden": "has none",
    }
    assert found["must"].signature == "bool must(int a = -1) const"
    assert found["nothing"].signature == "void nothing(void*)"
    with pytest.raises(ValueError, match="no header has a class Gone"):
        virtuals.virtual_methods(HEADER, "Gone")


@pytest.mark.parametrize("key", virtuals.INTERFACES)
def test_every_method_of_the_headers_is_spoken_of(key: str) -> None:
    declared, said = virtuals.methods(key), interfaces.SAID[key]
    assert not declared.keys() - said.keys(), "say something about these"
    assert not said.keys() - declared.keys(), "PyTorch has these no more"


@pytest.mark.parametrize("key", virtuals.INTERFACES)
def test_what_must_be_written_is(key: str) -> None:
    must = {n for n, m in virtuals.methods(key).items() if m.default is None}
    assert must <= set(virtuals.overrides(key)) | virtuals.provided(key)


def test_of_three_interfaces_every_method_is_ours() -> None:
    for key in ("hooks", "guard", "generator"):
        assert set(virtuals.overrides(key)) == set(virtuals.methods(key))


@pytest.mark.parametrize("key", virtuals.INTERFACES)
def test_every_row_names_a_test_that_exists(key: str) -> None:
    shown = interfaces.interface(key)
    for name, said in interfaces.SAID[key].items():
        file, function = said.test.split("::")
        tree = ast.parse((TESTS / file).read_text())
        assert function in {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
        }, name
        assert f"| `{name}` | " in shown


def test_every_macro_that_registers_is_one_of_pytorchs() -> None:
    assert interfaces.macros_used().keys() == interfaces.MACROS.keys()
    for name in interfaces.MACROS:
        assert interfaces.macro(name).startswith(f"{name}("), name
