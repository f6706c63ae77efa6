"""``python -m eruca.admin``: the same as ``mqadmin``."""

from eruca.admin.cli import main

if __name__ == "__main__":
    main()
