from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from chat_core.api.routes import api_routes
from chat_core.workbench import Workbench


@pytest.fixture
def client(workbench: Workbench, tmp_path: Path) -> TestClient:
    folder = tmp_path / "assets"
    folder.mkdir()
    (folder / "live.js").write_text("export default 1;")
    (folder / "secret.py").write_text("x")
    (tmp_path / "outside.js").write_text("x")
    return TestClient(Starlette(routes=api_routes(lambda: workbench, assets_folder=folder)))


def test_an_asset_is_served_with_its_type_and_checked_again_by_its_tag(client: TestClient) -> None:
    answer = client.get("/api/assets/live.js")
    assert (answer.status_code, answer.text) == (200, "export default 1;")
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.headers["cache-control"] == "no-cache"
    again = client.get("/api/assets/live.js", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_an_asset_named_with_its_version_is_kept_for_ever(client: TestClient) -> None:
    assert "immutable" in client.get("/api/assets/live.js?v=abc").headers["cache-control"]


@pytest.mark.parametrize(
    "name",
    ["nope.js", "secret.py", "..%2Foutside.js", "%2e%2e%2foutside.js", ".js", "live.js%00", "live.js%0a", "a..js"],
)
def test_nothing_else_is_served(client: TestClient, name: str) -> None:
    answer = client.get(f"/api/assets/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"
