"""Print the fields of all messages of a client's stubs as JSON: {message: {field: [number, type, repeated]}}.

Usage: proto_fields.py MODULE
"""

import importlib
import json
import sys

fields = {}


def add(message):
    fields[message.full_name] = {
        field.name: [field.number, field.type, field.is_repeated] for field in message.fields
    }
    for nested in message.nested_types:
        add(nested)


def add_file(file):
    for message in file.message_types_by_name.values():
        add(message)
    for imported in file.dependencies:
        add_file(imported)


add_file(importlib.import_module(sys.argv[1]).DESCRIPTOR)
json.dump(fields, sys.stdout)
