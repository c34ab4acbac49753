#!/usr/bin/env python3
"""
transform.py: reads orders, writes invoices to another topic and to the database.  Input offset
and output are one Kafka transaction, which the database knows nothing of.

    transform.py database-first|kafka-first ADDRESS

The plain invoice is a row as an application without idem_action writes it.  Before each commit
the program prints what it has done, and goes on when it reads a line.
"""

import sys

import confluent_kafka
import psycopg


def invoice(connection, order):
    """The number of the order's invoice, which is written once."""
    connection.execute("INSERT INTO plain_invoice (order_id) VALUES (%s)", (order,))
    key = "acme/invoices/" + order
    outcome, result = connection.execute(
        "SELECT outcome, result FROM idem_consume(%s, '{}')", (key,)).fetchone()
    if outcome == "duplicate":
        return result["number"]             # the same invoice to the topic, too
    number = connection.execute("INSERT INTO invoice (order_id) VALUES (%s) RETURNING number",
                                (order,)).fetchone()[0]
    connection.execute("SELECT idem_consume_result(%s, jsonb_build_object('number', %s::int))",
                       (key, number))
    return number


def told(what):
    print(what, flush=True)
    sys.stdin.readline()


def transform(mode, address):
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": address, "group.id": "transform", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
        "session.timeout.ms": 2000, "heartbeat.interval.ms": 500})
    producer = confluent_kafka.Producer({"bootstrap.servers": address,
                                         "transactional.id": "transform-1"})
    producer.init_transactions(60)          # what an earlier process left open is aborted
    consumer.subscribe(["orders"])
    connection = psycopg.connect("")
    while True:
        record = consumer.poll(0.2)
        if record is None:
            continue
        if record.error() is not None:
            raise confluent_kafka.KafkaException(record.error())
        producer.begin_transaction()
        number = invoice(connection, record.key().decode())
        producer.produce("invoices", str(number), record.key())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60)
        producer.flush(60)
        if mode == "database-first":
            connection.commit()
            told("database")
        producer.commit_transaction(60)
        told("kafka")
        connection.commit()


transform(*sys.argv[1:])
