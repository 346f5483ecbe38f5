"""What an address may end with: the Internet's own names and those of private networks, but no program's."""

from __future__ import annotations

from plugins.pii.domains import TOP_LEVEL


def test_names_of_the_internet_and_of_private_networks_are_known() -> None:
    assert {"com", "cn", "museum", "photography", "xn", "corp", "local"} <= TOP_LEVEL
    assert not {"png", "service", "transpose", "view", "yaml"} & TOP_LEVEL
    assert all(name.isascii() and name.isalpha() and name.islower() for name in TOP_LEVEL)
