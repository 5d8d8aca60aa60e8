"""The model of the example, in ways that a page shows and runs."""

import inspect

import pytest
import torch

import _examples

pytestmark = pytest.mark.one_mode


@pytest.fixture(scope="module")
def example():
    return _examples.load("one_model")


def code_lines(text: str) -> int:
    lines = map(str.strip, text.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)


@pytest.mark.proves("one-model-lines")
def test_each_way_has_at_most_ten_lines(example):
    for way in example.WAYS.values():
        assert code_lines(inspect.getsource(way)) <= 10, way.__name__
    assert code_lines(inspect.getsource(example)) <= 200


def test_what_is_exported_gives_what_the_model_gives(example):
    images, _ = example.pictures(5, seed=4)
    of_file, of_class = example.exported(), example.eager()
    torch.testing.assert_close(of_file(images), of_class(images))
