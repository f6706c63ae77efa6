"""The client's logger: ``logging.getLogger("eruca.client")``, silent unless the application configures logging."""

from __future__ import annotations

import logging

log = logging.getLogger("eruca.client")
log.addHandler(logging.NullHandler())
