"""The OpenAPI description of the HTTP APIs, made from the declarations of the endpoints and their records."""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from mailwarden.abby.openapi_schemas import REFERENCE, Schema, reference, schemas_of
from mailwarden.access.endpoints import AnyEndpoint
from mailwarden.access.permissions import ApiPermission
from mailwarden.serving.errors import STATUS_OF
from mailwarden.serving.http_app import API_VERSION
from mailwarden.serving.ndjson import NDJSON
from mailwarden.serving.uploads import MAX_BODY
from mailwarden.wire.scanning import ErrorBody

_BYTES: Schema = {"type": "string", "format": "binary"}
# Of responses without record, by their media type.
_PLAIN_SCHEMAS: Mapping[str, Schema] = {
    "application/json": {"type": "object"},
    "text/plain": {"type": "string"},
    "message/rfc822": _BYTES,
}
_KEY: Schema = {
    "type": "apiKey",
    "in": "header",
    "name": "Authorization",
    "description": "`apikey` and the API key, with a space between them.",
}


def describe(endpoints: Sequence[AnyEndpoint]) -> bytes:
    """Return the description of these endpoints as JSON."""
    paths: dict[str, dict[str, Schema]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Mailwarden Email Scanning API and List API",
            "version": API_VERSION,
            "description": "A raw message goes in; a decision, a verdict and tags come out. Lists act on it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": _schemas(endpoints),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}, "key": _KEY},
            "headers": {"X-Request-Id": {"description": "Names this call in the logs.", "schema": {"type": "string"}}},
        },
    }
    return msgspec.json.encode(document, order="deterministic")


def _schemas(endpoints: Sequence[AnyEndpoint]) -> Mapping[str, Schema]:
    """Return the schemas of all records; of the record of a query only the types of its parameters."""
    records: set[type[Struct]] = {ErrorBody}
    queries: set[type[Struct]] = set()
    for endpoint in endpoints:
        records.update(record for record in (endpoint.body, endpoint.form, endpoint.result) if record is not None)
        records.update(() if endpoint.lines is None else endpoint.lines.records)
        queries.update(() if endpoint.query is None else (endpoint.query,))
    schemas = schemas_of([*records, *queries])
    return {name: schema for name, schema in schemas.items() if name not in {query.__name__ for query in queries}}


def _operation(endpoint: AnyEndpoint) -> Schema:
    operation: Schema = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "responses": {str(endpoint.status): _success(endpoint), **_failures(endpoint)},
    }
    parameters = _parameters(endpoint)
    if parameters:
        operation["parameters"] = parameters
    if endpoint.permission is not None:
        operation["security"], operation["description"] = _credentials(endpoint.permission)
    if endpoint.form is not None:
        operation["requestBody"] = _upload(endpoint.form)
    if endpoint.message != "none":
        operation["requestBody"] = _message(endpoint)
    if endpoint.body is not None:
        body = reference(endpoint.body.__name__)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def _credentials(permission: ApiPermission) -> tuple[list[Schema], str]:
    """Return the credentials that an operation takes, and the sentence about them."""
    if permission.token is None:
        return [{"key": []}], f"Needs the scope `{permission.scope}`."
    if permission.scope is None:
        return [{"token": []}], f"Needs the permission `{permission.token}`."
    sentence = f"Needs a token with the permission `{permission.token}`, or an API key with the scope "
    return [{"token": []}, {"key": []}], f"{sentence}`{permission.scope}`."


def _parameters(endpoint: AnyEndpoint) -> list[Schema]:
    uuid = {"type": "string", "format": "uuid"}
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": uuid}
        for name in re.findall(r"\{(\w+)\}", endpoint.path)
    ]
    if endpoint.query is not None:
        parameters.extend(_query(endpoint.query))
    if endpoint.form is not None:
        schema = {"type": "string", "pattern": r"^[\x21-\x7e]{1,255}$"}
        text = "The same key with the same body within 24 hours answers the first result again."
        parameters.append({"name": "Idempotency-Key", "in": "header", "description": text, "schema": schema})
    return parameters


def _query(record: type[Struct]) -> Iterator[Schema]:
    """Yield the query parameters of a record."""
    _, components = msgspec.json.schema_components([record], ref_template=REFERENCE)
    required = components[record.__name__]["required"]
    for name, schema in components[record.__name__]["properties"].items():
        yield {"name": name, "in": "query", "required": name in required, "schema": schema}


def _message(endpoint: AnyEndpoint) -> Schema:
    schema = {"type": "string", "format": "binary", "minLength": 1}
    return {
        "required": endpoint.message == "required",
        "description": f"The raw message, at most {MAX_BODY} bytes.",
        "content": {"message/rfc822": {"schema": schema}},
    }


def _upload(parameters: type[Struct]) -> Schema:
    schema = {
        "type": "object",
        "required": ["parameters", "email"],
        "additionalProperties": False,
        "properties": {
            "parameters": reference(parameters.__name__),
            "email": {"type": "string", "format": "binary", "minLength": 1, "description": "The raw message."},
        },
    }
    encoding = {"parameters": {"contentType": "application/json"}, "email": {"contentType": "message/rfc822"}}
    content = {"multipart/form-data": {"schema": schema, "encoding": encoding}}
    return {"required": True, "description": f"At most {MAX_BODY} bytes.", "content": content}


def _success(endpoint: AnyEndpoint) -> Schema:
    success: Schema = {"description": "Success.", "headers": _headers()}
    if endpoint.status == 204:
        return success
    content: Schema = {}
    if endpoint.result is not None:
        content["application/json"] = {"schema": reference(endpoint.result.__name__)}
    elif endpoint.lines is None:
        content[endpoint.media_type] = {"schema": _PLAIN_SCHEMAS[endpoint.media_type]}
    if endpoint.lines is not None:
        sentence = endpoint.lines.sentence
        success["description"] = f"Success. As {NDJSON}: {sentence}" if content else sentence
        content[NDJSON] = {"schema": _BYTES}
        own = {
            name: {"schema": {"type": "string", "pattern": pattern}} for name, pattern in endpoint.lines.headers.items()
        }
        success["headers"] = {**_headers(), **own}
    success["content"] = content
    if endpoint.form is not None:
        explanation = {"operationId": "explainMessage", "parameters": {"ggrid": "$response.body#/ggrid"}}
        success["links"] = {"explanation": explanation}
    return success


def _failures(endpoint: AnyEndpoint) -> dict[str, Schema]:
    """Return one response per status with its possible error codes."""
    codes: dict[int, set[str]] = {}
    for kind in endpoint.possible_errors:
        codes.setdefault(STATUS_OF[kind], set()).add(kind.code)
    responses: dict[str, Schema] = {}
    for status, names in sorted(codes.items()):
        content: Schema = {"application/json": {"schema": reference("Error")}}
        if endpoint.path == "/readyz" and status == 503:
            content["text/plain"] = {"schema": {"type": "string"}}
        # One model for all errors; the possible codes are an extension beside it.
        responses[str(int(status))] = {
            "description": ", ".join(sorted(names)),
            "headers": _headers(),
            "content": content,
            "x-error-codes": sorted(names),
        }
    return responses


def _headers() -> Schema:
    return {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
