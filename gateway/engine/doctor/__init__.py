"""What can be wrong before an engine starts: each check looks at one thing and tells what it found, and the mend."""

from gateway.engine.doctor.finding import Finding, Level
from gateway.engine.doctor.folder import look_at_model
from gateway.engine.doctor.host import look_at_host
from gateway.engine.doctor.software import look_at_software

__all__ = ["Finding", "Level", "look_at_host", "look_at_model", "look_at_software"]
