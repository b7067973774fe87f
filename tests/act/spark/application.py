"""A Spark application that runs commands: the user's program in the tests.

Reads commands from standard input, a line of JSON each, and answers on standard output. It knows
nothing of gnomon but the settings it is given.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from pyspark import SparkConf, SparkContext


def napping(milliseconds):
    def nap(items):
        time.sleep(milliseconds / 1000)
        return items

    return nap


def run_job(context, tasks, ms, reducers=3, pool=None, barrier=False):
    """Two stages with a shuffle between; the sum of all numbers comes out."""
    if pool:
        context.setLocalProperty("spark.scheduler.pool", pool)
    numbers = context.parallelize(range(tasks * 10), tasks)
    numbers = (numbers.barrier() if barrier else numbers).mapPartitions(napping(ms))
    sums = numbers.map(lambda n: (n % 10, n)).reduceByKey(lambda a, b: a + b, reducers)
    return sum(value for _, value in sums.mapPartitions(napping(ms)).collect())


def main():
    lock = threading.Lock()

    def say(**what):
        with lock:
            print(json.dumps(what), flush=True)

    def work(context, name, job):
        try:
            say(job=name, result=run_job(context, **job))
        except Exception as error:
            say(job=name, error=str(error)[:2000])

    context = None
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "warm":  # the JVM takes a while; what it is started with stays
            SparkContext._ensure_initialized(conf=SparkConf().setAll(command["conf"].items()))
        elif command["do"] == "start":
            context = SparkContext(conf=SparkConf().setAll(command["conf"].items()))
            context.setLogLevel("ERROR")
            say(started=context.applicationId)
        elif command["do"] == "job":
            arguments = (context, command["name"], command["job"])
            threading.Thread(target=work, args=arguments, daemon=True).start()
        elif command["do"] == "stop":
            context.stop()
            say(stopped=True)


if __name__ == "__main__":
    main()
