"""Writes what became of every exchange to a file, one JSON line each, without making anybody wait."""

from plugins.audit_log.plugin import AuditLog

__all__ = ["AuditLog"]
