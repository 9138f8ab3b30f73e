# SPDX-License-Identifier: Apache-2.0
"""Holds an answer of chxad against proto/openapi.yaml: is this status described, is the body of that shape?

The small part of JSON Schema that the file uses, so that the tests need nothing but PyYAML. Objects must not have
members that the file does not name: what is answered and not described is a fault of the description.
"""
import functools
import json
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool}
# Answered before a route is known, or by any route: not listed with each of them.
ANYWHERE = {400, 404, 405, 408, 411, 413, 414, 417, 431, 500, 503}


@functools.cache
def spec():
    with open(ROOT / "proto" / "openapi.yaml", encoding="utf-8") as file:
        return yaml.safe_load(file)


def resolve(node):
    while "$ref" in node:
        target = spec()
        for name in node["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        node = target
    return node


def members(schema):
    """The schema with its allOf folded in."""
    schema = resolve(schema)
    whole = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema.get("allOf", ()):
        part = members(part)
        for key, value in part.items():
            if key == "properties":
                whole["properties"] = {**value, **whole.get("properties", {})}
            elif key == "required":
                whole["required"] = whole.get("required", []) + value
            else:
                whole.setdefault(key, value)
    return whole


def problems(value, schema, where="body"):
    schema = members(schema)
    if value is None:
        if not schema.get("nullable"):
            yield f"{where} is null"
        return
    kind = schema.get("type")
    if kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, int if kind == "integer" else (int, float)):
            yield f"{where} is {value!r}, not of type {kind}"
            return
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            yield f"{where} is {value}, out of bounds"
    elif kind and not isinstance(value, TYPES[kind]):
        yield f"{where} is {value!r}, not of type {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r}, none of {schema['enum']}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where} is {value!r}, not of the form {schema['pattern']}"
    if kind == "object":
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{where} lacks {name}"
        for name, member in value.items():
            if name in schema.get("properties", {}):
                yield from problems(member, schema["properties"][name], f"{where}.{name}")
            else:
                yield f"{where} has {name}, which is not described"
    elif kind == "array":
        for index, item in enumerate(value):
            yield from problems(item, schema["items"], f"{where}[{index}]")


def operation(method, path):
    for pattern, item in spec()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path) and method.lower() in item:
            return item[method.lower()]
    return None


def check(method, path, status, content_type, body):
    """What is wrong with this answer, as a list of sentences. path: without the query."""
    if status >= 400:
        described = spec()["components"]["responses"].get(f"E{status}")
        if described is None:
            return [f"{status} is no status of an error"]
        code = json.loads(body)["error"]["code"] if content_type == "application/json" else None
        found = [] if code in described["x-chxa-codes"] else [f"{code} is not listed for {status}"]
    else:
        described, found = None, []
    known = operation(method, path)
    if known is not None:
        listed = known["responses"].get(str(status))
        if listed is None and status not in ANYWHERE:
            found.append(f"{method} {path}: status {status} is not described")
        described = described or (resolve(listed) if listed else None)
    if described is None:
        return found
    content = described.get("content", {})
    kind = (content_type or "").split(";")[0]
    if kind not in content:
        found.append(f"{method} {path}: {status} is of type {content_type}, not {list(content)}")
    elif kind == "application/json":
        found += problems(json.loads(body), content[kind]["schema"])
    return found
