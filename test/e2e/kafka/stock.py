#!/usr/bin/env python3
"""
stock.py: a consumer whose effect is a row, by the program of doc/patterns/kafka_consumer.py.  It
keeps no inbox: that a record is done is known by its offset alone.

    stock.py TOPIC database|broker NAME=VALUE...
"""

import sys

import kafka_consumer


def move(connection, record):
    connection.execute(
        "INSERT INTO movement (topic, record, item, who)"
        " VALUES (%s, %s, %s, current_setting('application_name'))",
        (record.topic(), record.offset(), record.value().decode()))


kafka_consumer.Consumer(sys.argv[1], "stock", move,
                        dict(word.split("=", 1) for word in sys.argv[3:]), sys.argv[2]).run()
