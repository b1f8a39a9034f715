"""Tells schemathesis how a body of the type message/rfc822 is sent: as the bytes that it is."""

import schemathesis
from schemathesis.transport.serialization import serialize_binary


@schemathesis.serializer("message/rfc822")
def write_message(context, value):
    return serialize_binary(value)
