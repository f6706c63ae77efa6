"""Applications as processes: the command ``eruca run``, in one process or with workers that are replaced."""
