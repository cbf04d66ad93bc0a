import numpy as np

import nbmodule as nb


def test_a_list_is_as_good_as_a_tuple(draws):
    x = draws.normal(size=(1, 6, 6, 2)).astype("f")
    listed = nb.Conv2d(
        2, 3, [3, 2], stride=[2, 1], padding=[[1, 0], [0, 1]], dilation=[1, 1], key=0
    )
    wanted = nb.Conv2d(
        2, 3, (3, 2), stride=(2, 1), padding=((1, 0), (0, 1)), dilation=(1, 1), key=0
    )
    np.testing.assert_array_equal(listed(x), wanted(x))


def test_names_and_shapes_of_the_variables():
    layer = nb.Conv2d(4, 6, (3, 5), groups=2)
    assert list(layer.state_dict()) == ["bias", "weight"]
    assert sorted(layer.v.keys()) == ["b", "w"]
    assert layer.weight.shape == (6, 3, 5, 2)
    assert nb.ConvTranspose2d(4, 6, 3, groups=2).weight.shape == (6, 3, 3, 2)


def test_names_with_a_capital_are_aliases():
    assert nb.Conv2D is nb.Conv2d
    assert nb.ConvTranspose3D is nb.ConvTranspose3d
    assert nb.DepthwiseConv2D is nb.DepthwiseConv2d
