"""What the tests of deploy/ and helm/ share: the fake engine and the gateway of the system tests."""

from __future__ import annotations

from tests.system.conftest import _engine, fake, gateway, start_gateway

__all__ = ["_engine", "fake", "gateway", "start_gateway"]
