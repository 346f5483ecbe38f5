"""The kinds of callers, a class each; their names are what Locust's command line takes."""

from loadtests.scenarios.batch import Batch
from loadtests.scenarios.chat import Chat
from loadtests.scenarios.evaders import Evaders
from loadtests.scenarios.impolite import Leavers, SlowReaders
from loadtests.scenarios.long_inputs import Rag, SharedPrompt

__all__ = ["Batch", "Chat", "Evaders", "Leavers", "Rag", "SharedPrompt", "SlowReaders"]
