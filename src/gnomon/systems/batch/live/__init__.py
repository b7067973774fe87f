"""The policies beside a running Spark application."""
