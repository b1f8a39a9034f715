"""Tells schemathesis what a body of the type message/rfc822 is: any bytes at all."""

import schemathesis
from hypothesis import strategies


@schemathesis.serializer("message/rfc822")
def write_message(context, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


schemathesis.openapi.media_type("message/rfc822", strategies.binary(min_size=1))
