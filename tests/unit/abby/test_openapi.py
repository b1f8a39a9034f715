"""The API description: complete, and made from what the code does."""

import json

from mailwarden.abby.openapi import OPERATIONS, describe
from mailwarden.serving.http_app import Route


async def answer_nothing(call):
    raise NotImplementedError


PERMISSIONS = {"submitEmail": "messageQueue.submit", "explainMessage": "messageQueue.read", "getStatus": "admin.status"}
DOCUMENT = json.loads(
    describe([Route(m, p, answer_nothing, PERMISSIONS.get(operation.name)) for (m, p), operation in OPERATIONS.items()])
)
SUBMIT = DOCUMENT["paths"]["/v1/messageQueue/submitEmail"]["post"]


def codes(operation, status):
    return operation["responses"][status]["content"]["application/json"]["schema"]["allOf"][1]["properties"]["error"][
        "enum"
    ]


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
    assert schemas["MessageAnalysisResult"]["properties"]["decision"]["enum"][0] == "undecided"
    assert schemas["SystemStatus"]["properties"]["messageQueueStatus"]["enum"] == ["GREEN", "YELLOW", "RED"]
    assert schemas["BorderMtaData"]["properties"]["envelopeFrom"]["allOf"][0]["pattern"].endswith("*$")
    assert schemas["Error"]["required"] == ["error"]


def test_times_and_enumerations_are_declared():
    schemas = DOCUMENT["components"]["schemas"]
    moment = {"type": "string", "format": "date-time"}
    for record, names in {
        "MessageAnalysisResult": ("created", "completed"),
        "MessageExplanation": ("created", "completed"),
        "Held": ("receivedAt", "expiresAt"),
        "HeldFor": ("changedAt",),
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


def test_query_and_path_parameters_are_described():
    parameters = DOCUMENT["paths"]["/v1/reports"]["get"]["parameters"]
    assert [(each["name"], each["in"], each["required"]) for each in parameters] == [
        ("tenantUid", "query", True),
        ("before", "query", False),
        ("limit", "query", False),
    ]
    assert parameters[2]["schema"]["maximum"] == 500
    taken_back = DOCUMENT["paths"]["/v1/reports/{uid}"]["delete"]
    assert [(each["name"], each["in"]) for each in taken_back["parameters"]] == [("uid", "path")]
    assert "content" not in taken_back["responses"]["204"]


def test_an_operation_declares_whether_a_body_is_required():
    paths = DOCUMENT["paths"]
    body = {path: paths[path]["post"]["requestBody"] for path in ("/v1/reports", "/v1/messages/{ggrid}/report")}
    assert [each["required"] for each in body.values()] == [True, False]
    assert all(list(each["content"]) == ["message/rfc822"] for each in body.values())
