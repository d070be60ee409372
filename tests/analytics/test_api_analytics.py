"""The statistics over HTTP: the page's charts and filters as JSON and CSV."""

import csv
import io
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from chat_core.analytics.analytics import Analytics
from chat_core.analytics.catalog import CHARTS
from chat_core.api.analytics import analytics_routes
from chat_core.workbench import Workbench
from tests.analytics.recorder import Recorder

ALL = "range=all&branches=all"


@pytest.fixture
def client(recorder: Recorder, analytics: Analytics) -> TestClient:
    run = recorder.run(recorder.session(title="=cmd|' /C calc'!A0"))
    run.call("terminal", {"n": 1}, ms=30, error=True)
    run.call("read_file", ms=10)
    run.end()
    workbench = cast(Workbench, SimpleNamespace(analytics=analytics))
    return TestClient(Starlette(routes=analytics_routes(lambda: workbench)))


@pytest.mark.parametrize("name", list(CHARTS))
def test_every_chart_is_there_as_json_and_csv(client: TestClient, name: str) -> None:
    answer = client.get(f"/api/analytics/{name}?{ALL}")
    assert answer.status_code == 200
    body = answer.json()
    assert body["chart"] == name
    assert all(set(row) == set(body["columns"]) for row in body["rows"])
    assert body["footer"]["zone"] == "UTC"
    as_file = client.get(f"/api/analytics/{name}?{ALL}&format=csv&sync=0")
    assert as_file.headers["content-type"].startswith("text/csv")
    rows = list(csv.reader(io.StringIO(as_file.content.decode("utf-8-sig"))))
    assert rows[0] == body["columns"]
    assert len(rows) == len(body["rows"]) + 1


def test_the_filters_of_the_page_work(client: TestClient) -> None:
    body = client.get(f"/api/analytics/scorecard?{ALL}&tool=terminal&zone=Europe/Berlin").json()
    assert [(row["tool"], row["errors"]) for row in body["rows"]] == [("terminal", 1)]
    assert body["rows"][0]["last_used"] == "2026-03-10T09:00:00.000Z"
    assert body["footer"]["zone"] == "Europe/Berlin"
    assert body["footer"]["counted"] == 1


def test_the_sessions_behind_a_number_are_a_call_of_their_own(client: TestClient) -> None:
    body = client.get(f"/api/analytics/sessions?{ALL}&behind=call;outcome=error").json()
    assert [row["rows"] for row in body["rows"]] == [1]


def test_what_a_spreadsheet_would_run_is_written_as_text(client: TestClient) -> None:
    text = client.get(f"/api/analytics/slowest?{ALL}&format=csv").text
    assert "'=cmd" in text
    assert ",=cmd" not in text


def test_the_list_names_all_charts(client: TestClient) -> None:
    assert set(client.get("/api/analytics").json()["charts"]) == {*CHARTS, "sessions"}


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("scorecard?range=forever", 400, "invalid_input"),
        ("scorecard?zone=Mars", 400, "invalid_input"),
        ("scorecard?format=xml", 400, "invalid_input"),
        ("scorecard?colour=red", 400, "invalid_input"),
        ("sessions?behind=call;owner=she", 400, "invalid_input"),
        ("pie", 404, "not_found"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_reason(
    client: TestClient, query: str, status: int, code: str
) -> None:
    answer = client.get(f"/api/analytics/{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["message"]


def test_only_reading_is_possible(client: TestClient) -> None:
    assert client.post("/api/analytics/scorecard").status_code == 405
