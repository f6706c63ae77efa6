"""A job of a user that calls the pipelines, for spark-submit."""

from __future__ import annotations

JOB = """
import sys
from pyspark.sql import SparkSession
from eruca.spark_connector import register
from eruca.spark_connector.pipelines import archive, read_archive

name_server, topic, lake = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)
kept = archive(spark, name_server=name_server, topics=[topic], to=lake)
print("archived", kept.messages, "read", read_archive(spark, lake).count())
print("eruca is", sys.modules["eruca.spark_connector"].__file__)
"""
