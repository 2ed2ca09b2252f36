"""What schemathesis must know about this server: how NDJSON is written, and that each request is of another address
behind the proxy, so that unknown tokens are not refused with 429 for their number."""

import itertools
import json

import schemathesis

addresses = (f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}" for number in itertools.count(1))


@schemathesis.hook
def before_call(context, case, kwargs):
    case.headers["X-Forwarded-For"] = next(addresses)


@schemathesis.serializer("application/x-ndjson")
def ndjson(context, value):
    return {"data": value.encode() if isinstance(value, str) else json.dumps(value).encode()}
