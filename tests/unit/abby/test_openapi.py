"""The API description: complete, and made from what the code does."""

import json

from mailwarden.abby.endpoints import ENDPOINTS
from mailwarden.abby.openapi import describe

DOCUMENT = json.loads(describe(ENDPOINTS))
SUBMIT = DOCUMENT["paths"]["/v1/messageQueue/submitEmail"]["post"]


def codes(operation, status):
    return operation["responses"][status]["x-error-codes"]


def test_every_reference_leads_somewhere():
    text = json.dumps(DOCUMENT)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= DOCUMENT["components"]["schemas"].keys()


def test_the_upload_declares_parameters_as_json():
    content = SUBMIT["requestBody"]["content"]["multipart/form-data"]
    assert content["encoding"]["parameters"] == {"contentType": "application/json"}
    assert content["schema"]["required"] == ["parameters", "email"]


def test_each_status_lists_its_codes():
    assert codes(SUBMIT, "413") == ["payload_too_large"]
    assert codes(SUBMIT, "502") == ["core_error", "core_unreachable"]
    assert "overloaded" in codes(SUBMIT, "503")
    assert codes(DOCUMENT["paths"]["/v1/messages/{ggrid}"]["get"], "404") == ["message_not_found"]


def test_security_is_declared_exactly_where_a_credential_is_needed():
    assert SUBMIT["security"] == [{"token": []}, {"key": []}]
    assert "`messages:submit`" in SUBMIT["description"]
    assert "security" not in DOCUMENT["paths"]["/healthz"]["get"]


def test_closed_sets_are_closed_and_patterns_are_of_the_schema_language():
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Decision"]["enum"][0] == "undecided"
    assert schemas["StatusColour"]["enum"] == ["GREEN", "YELLOW", "RED"]
    assert schemas["BorderMtaData"]["properties"]["envelopeFrom"]["allOf"][0]["pattern"].endswith("*$")
    assert schemas["Error"]["required"] == ["error"]


def test_times_and_enumerations_are_declared():
    schemas = DOCUMENT["components"]["schemas"]
    moment = {"type": "string", "format": "date-time"}
    for record, names in {
        "MessageAnalysisResult": ("created", "completed"),
        "MessageExplanation": ("created", "completed"),
        "HeldMessage": ("receivedAt", "expiresAt"),
        "HeldRecipient": ("changedAt",),
        "Report": ("reportedAt",),
        "PublicListsEntry": ("created", "updated", "expires", "lastHit"),
        "ListEntryInput": ("expires",),
    }.items():
        for name in names:
            described = schemas[record]["properties"][name]
            assert moment.items() <= described.get("anyOf", [described])[0].items(), (record, name)
    for record in schemas.values():
        for described in record.get("properties", {}).values():
            assert "enum" not in described or described["type"] == "string"


def inline_types(schema, path=""):
    """Yield the places of objects and closed sets that have no name: a generator makes a model of each."""
    if isinstance(schema, list):
        for number, each in enumerate(schema):
            yield from inline_types(each, f"{path}/{number}")
    elif isinstance(schema, dict):
        values = schema.get("additionalProperties")
        if path and ("enum" in schema or "properties" in schema or (isinstance(values, dict) and "type" in values)):
            yield path
        for key, each in schema.items():
            yield from inline_types(each, f"{path}/{key}")


def test_a_generator_makes_few_models():
    schemas = DOCUMENT["components"]["schemas"]
    assert len(schemas) < 90
    unnamed = [f"{name}{place}" for name, schema in schemas.items() for place in inline_types(schema)]
    assert unnamed == []
    calls = [f"{method} {path}" for path, each in DOCUMENT["paths"].items() for method in each]
    found = [place.split("/schema")[0] for place in inline_types({"paths": DOCUMENT["paths"]})]
    assert len(found) <= 1, found  # the form of submitEmail
    assert len(calls) > 25


def test_every_error_is_one_model():
    for path in DOCUMENT["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                if status[0] in "45":
                    schema = response["content"]["application/json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/Error"}
                    assert response["x-error-codes"]


def test_query_and_path_parameters_are_described():
    parameters = DOCUMENT["paths"]["/v1/reports"]["get"]["parameters"]
    assert [(each["name"], each["in"], each["required"]) for each in parameters] == [
        ("tenantUid", "query", True),
        ("before", "query", False),
        ("beforeUid", "query", False),
        ("limit", "query", False),
    ]
    assert parameters[3]["schema"]["maximum"] == 500
    taken_back = DOCUMENT["paths"]["/v1/reports/{uid}"]["delete"]
    assert [(each["name"], each["in"]) for each in taken_back["parameters"]] == [("uid", "path")]
    assert "content" not in taken_back["responses"]["204"]


def test_an_operation_declares_whether_a_body_is_required():
    paths = DOCUMENT["paths"]
    body = {path: paths[path]["post"]["requestBody"] for path in ("/v1/reports", "/v1/messages/{ggrid}/report")}
    assert [each["required"] for each in body.values()] == [True, False]
    assert all(list(each["content"]) == ["message/rfc822"] for each in body.values())
