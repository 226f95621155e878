"""Every way to hurt a lake that the checker knows."""

from __future__ import annotations

import damaged_files
import damaged_iceberg
import damaged_journal
import damaged_tables
from patients import DAMAGES, ORDERS_ID, Damage, Patient

__all__ = ["DAMAGES", "ORDERS_ID", "Damage", "Patient", "damaged_files", "damaged_iceberg", "damaged_journal", "damaged_tables"]
