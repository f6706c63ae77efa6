"""Epochs: which master of a broker name is the newest, so that no former one comes back.

Brokers that elect their master among themselves (RocketMQ 5 in controller mode) register with its epoch, as the
``stateVersion`` of their data version. Pure: no socket, no clock; times are arguments in ms of the monotonic clock.
Invariant: while a name has brokers, and for ``lasting`` ms after, a master at another address needs an epoch at least
as high as any before. RocketMQ 5.3.3 compares with the registered broker only (RouteInfoManager.registerBroker): a
former master registers in the moment in which the newer one is away.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass


@dataclass(slots=True)
class Claim:
    """The newest master of a broker name."""

    address: str
    epoch: int
    left: int | None = None
    """When the last broker of the name was found gone."""


class OlderEpoch(Exception):
    """A registration as a master whose epoch is over."""

    def __init__(self, claim: Claim, epoch: int) -> None:
        super().__init__(claim.address)
        self.claim = claim
        self.epoch = epoch


class MasterEpochs:
    """The newest masters by broker name; brokers without epochs are in no claim.

    Args:
        lasting: ms for which a claim outlives the last broker of its name.
    """

    def __init__(self, lasting: int) -> None:
        self._claims: dict[str, Claim] = {}
        self._lasting = lasting

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, name: str) -> bool:
        return name in self._claims

    def check(self, name: str, address: str, epoch: int) -> None:
        """Raise OlderEpoch for a master that another address has followed."""
        claim = self._claims.get(name)
        if claim is not None and claim.address != address and epoch < claim.epoch:
            raise OlderEpoch(claim, epoch)

    def claim(self, name: str, address: str, epoch: int) -> None:
        """Note a master that has been registered. Without an epoch (0) it ends its own claim."""
        if epoch > 0:
            self._claims[name] = Claim(address, epoch)
        else:
            self._claims.pop(name, None)

    def expire(self, names: Container[str], now: int) -> None:
        """Forget the claims of names that are not among ``names``, those with brokers, for long enough."""
        for name, claim in tuple(self._claims.items()):
            if name in names:
                claim.left = None
            elif claim.left is None:
                claim.left = now
            elif claim.left + self._lasting < now:
                del self._claims[name]
