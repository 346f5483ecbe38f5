"""Orders and where they stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.upstream.place import Added, Book, Orders, Place, one_address

A, B = Place("a", "http://10.0.0.1:8000"), Place("b", "http://10.0.0.2:8000")


def test_without_orders_places_are_as_configured() -> None:
    assert Orders().places("m", [A, B]) == [A, B]


def test_an_order_changes_what_it_names_and_leaves_the_rest() -> None:
    orders = Orders().with_order(A, weight=0.5).with_order(A, draining=True)
    assert orders.places("m", [A, B]) == [replace(A, weight=0.5, draining=True), B]
    assert orders.with_order(A, removed=True).places("m", [A, B]) == [B]


@pytest.mark.parametrize("changed", [replace(A, weight=2), replace(A, url="http://10.0.0.7:8000")])
def test_an_order_is_over_when_the_configuration_says_something_else(changed: Place) -> None:
    orders = Orders().with_order(A, weight=0.5, draining=True)
    assert orders.places("m", [changed]) == [changed]
    assert orders.with_order(changed, weight=9.0).places("m", [changed]) == [replace(changed, weight=9.0)]


def test_an_engine_that_was_added_is_overruled_by_a_configured_one_of_its_name() -> None:
    orders = Orders().with_engine(Added("m", "b", "http://else:1", 3.0))
    assert orders.places("m", [A])[1].url == "http://else:1"
    assert orders.places("m", [A, B]) == [A, B]
    assert orders.places("n", [A]) == [A]


def test_a_book_is_read_again_only_when_it_was_written(tmp_path: Path) -> None:
    one, two = Book(tmp_path / "orders.json"), Book(tmp_path / "orders.json")
    assert not two.changed()
    one.write(lambda orders: orders.with_order(A, draining=True))
    assert not one.changed()
    assert two.changed()
    assert not two.changed()
    assert two.orders == one.orders
    two.write(lambda orders: orders.with_order(B, weight=0.0))
    assert one.changed()
    assert set(one.orders.engines) == {"a", "b"}


def test_without_a_file_a_book_is_kept_in_memory() -> None:
    book = Book(None)
    book.write(lambda orders: orders.with_order(A, draining=True))
    assert not book.changed()
    assert book.orders.engines["a"].draining


def test_only_plain_http_names_are_several_engines_by_themselves() -> None:
    assert not one_address(A)
    assert one_address(replace(A, each_address=False))
    assert one_address(Place("s", "https://api"))
    assert not one_address(Place("s", "https://api", each_address=True))
