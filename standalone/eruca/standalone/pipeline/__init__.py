"""The commands ``eruca pipeline …``: the pipelines of eruca.spark_connector for a terminal."""
