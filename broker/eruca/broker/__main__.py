"""``python -m eruca.broker``: the command ``mqbroker``."""

from eruca.broker.app import main

main()
