"""The folder that Spark's Python processes have on their path: they import what is in it by its name alone."""
