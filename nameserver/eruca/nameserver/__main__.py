"""``python -m eruca.nameserver``: the same as ``mqnamesrv``."""

from eruca.nameserver.app import main

if __name__ == "__main__":
    main()
