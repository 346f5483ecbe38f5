"""What every test shares, and the honest end of a run: which tests were not run, by name."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import settings

pytest_plugins = ("tests.engine_fixture",)

# A real engine shares the machine: how long an example takes says nothing. CI tries the same examples each time.
settings.register_profile("sluice", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("sluice")


@pytest.fixture
def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class NotRun:
    """Collects what was skipped, or expected to fail, and why. In CI one such test makes the run red."""

    def __init__(self) -> None:
        self.tests: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
            self.tests.append((report.nodeid, why.removeprefix("Skipped: ")))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            self.tests.append((report.nodeid, why.removeprefix("Skipped: ")))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.tests and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.tests:
            return
        terminalreporter.section("not run")
        for name, why in self.tests:
            terminalreporter.write_line(f"{name}: {why}")
        if os.environ.get("CI"):
            terminalreporter.write_line("CI accepts no run in which a test was not run.", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NotRun(), "not-run")
