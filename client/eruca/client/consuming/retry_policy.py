"""RetryPolicy: which failed messages come again, and after how many seconds; the others become dead letters.

Pure. Knows nothing of brokers: what they make of a delay is in ``retry_delays``. Facts: the rule of brokers for
maxReconsumeTimes, consumerSendMsgBack of SendMessageProcessor in 4.9.7.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eruca.client.message import ReceivedMessage
from eruca.client.outcomes import Backoff, Later, Outcome, Reject, Suspend


class RetryPolicy(msgspec.Struct, frozen=True):
    """``most`` retries of a message; ``backoff`` None leaves their times to the broker, or to suspend_time."""

    most: int
    backoff: Backoff | None = None

    def is_dead(self, message: ReceivedMessage, outcome: Outcome) -> bool:
        """Whether a message that failed with this outcome becomes a dead letter."""
        if isinstance(outcome, Reject) or message.reconsume_times >= self.most:
            return True
        return isinstance(outcome, Later) and outcome.delay_level < 0

    def dead(self, messages: Sequence[ReceivedMessage], outcome: Outcome) -> list[ReceivedMessage]:
        """Those of the messages of a call that become dead letters."""
        consumed = outcome.consumed if isinstance(outcome, Later | Reject) else 0
        return [message for message in messages[consumed:] if self.is_dead(message, outcome)]

    def wait(self, times: int, outcome: Outcome) -> float | None:
        """Seconds until the retry of a message that was retried ``times`` before; None: nobody said any."""
        if isinstance(outcome, Later | Suspend) and outcome.seconds is not None:
            return outcome.seconds
        if self.backoff is None or (isinstance(outcome, Later) and outcome.delay_level):
            return None
        return self.backoff.seconds(times)
