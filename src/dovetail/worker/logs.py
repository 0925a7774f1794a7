"""The worker's logger. A handler that raises costs a line in the log, never the outcome of a run."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any


class UnfailingLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs if it can."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        kwargs.setdefault("stacklevel", 3)
        # An exception that is logged may have a text that raises anything at all.
        with suppress(BaseException):
            super().log(level, msg, *args, **kwargs)


logger = UnfailingLogger(logging.getLogger("dovetail.worker"))
