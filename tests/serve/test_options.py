from __future__ import annotations

from typing import Any

import pytest

from gmlfm.errors import OptionError
from gmlfm.serve import ServeOptions


@pytest.mark.parametrize(
    "token", ["", "short", "seven77", "with a space in it", "a-tökën-that-is-none", "line\nend-token", 12345678]
)
@pytest.mark.parametrize("name", ["token", "write_token"])
def test_a_token_that_is_none_lets_nobody_in(name: str, token: Any) -> None:
    with pytest.raises(OptionError, match=f"^the option {name} holds no token: expected 8 or more ASCII") as raised:
        ServeOptions(**{name: token})
    assert not token or str(token) not in str(raised.value)


def test_names_are_checked_where_no_token_is() -> None:
    assert ServeOptions().known_hosts == ("localhost", "127.0.0.1", "[::1]")
    assert ServeOptions(write_token="a-writers-token").known_hosts == ServeOptions().known_hosts
    assert ServeOptions(token="a-readers-token").known_hosts == ()
    assert ServeOptions(hosts=()).known_hosts == ()
    assert ServeOptions(token="a-readers-token", hosts=("a",)).known_hosts == ("a",)
