from __future__ import annotations

import pytest

from gnomon.errors import InputError
from gnomon.systems.training.prediction.analytic.style import (
    STYLES,
    Style,
    find_style,
    last_of,
    width,
)


def test_styles_are_found_by_name():
    assert all(find_style(name) is style for name, style in STYLES.items())


def test_an_unknown_style_names_the_known_ones():
    with pytest.raises(InputError, match="megatron-2022"):
        find_style("megatorn")


@pytest.mark.parametrize("name", ["recompute", "loss", "optimizer"])
def test_a_wrong_word_is_refused(name):
    with pytest.raises(InputError, match=f"{name} is 'sometimes'"):
        Style(**{name: "sometimes"})


def test_changing_an_unknown_setting_is_refused():
    with pytest.raises(InputError, match="colour"):
        find_style("torch").changed(colour="red")


def test_an_unknown_dtype_has_no_width():
    with pytest.raises(InputError, match="int3"):
        width("int3")


def test_the_last_of_more_ranks_is_later():
    late = [last_of(ranks) for ranks in (1, 2, 4, 8, 64)]
    assert late[0] == 0.0
    assert late == sorted(late)
