"""Of what kind the inputs of a Bundle are: images, a table, or texts."""

import pickle
from dataclasses import replace

import pytest
import torch

from spurless import Bundle, Images, Split, Table, Texts, load_data
from spurless.core.errors import DataError
from spurless.data.coding import coding_of
from tests.support.text_worlds import sentences

Y = torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("shape", "kind"), [((4, 1, 2, 2), Images()), ((4, 3), Table()), ((4, 2, 5), Table()), ((4, 1), Table())]
)
def test_the_kind_is_read_from_the_shape_where_it_is_not_given(shape, kind):
    assert Bundle("mine", Split(torch.zeros(shape), Y)).inputs == kind


@pytest.mark.parametrize(("shape", "kind"), [((4, 1, 2, 2), Table()), ((4, 3), Images()), ((4, 2, 5), Images())])
def test_a_kind_that_the_inputs_are_not_is_refused(shape, kind):
    with pytest.raises(DataError, match="inputs"):
        Bundle("mine", Split(torch.zeros(shape), Y), inputs=kind)


def test_texts_are_a_kind_of_their_own_and_are_never_standardised():
    data = sentences(n=20)
    assert isinstance(data.inputs, Texts) and (data.inputs.mean, data.inputs.std) == ((), ())
    assert pickle.loads(pickle.dumps(data)).inputs == data.inputs  # as processes get it
    with pytest.raises(TypeError):
        replace(data.inputs, mean=(0.5,))


def test_the_coding_is_that_of_a_table_and_of_nothing_else():
    table = load_data({"name": "toy", "n": 20})
    code = {"column": "age", "mean": 0.0, "std": 1.0, "median": 0.0, "marked": False}
    assert coding_of(table) == () and coding_of(sentences(n=20)) == ()
    assert coding_of(replace(table, inputs=Table(coding=(code,)))) == (code,)


def test_what_belongs_to_one_kind_is_no_field_of_the_bundle():
    """Else `data.mean` of code that was written for another version would be empty, and nothing would say so."""
    data = load_data({"name": "toy", "n": 20})
    assert not [name for name in ("mean", "std", "augment", "columns", "coding", "tokens") if hasattr(data, name)]
