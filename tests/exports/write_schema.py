"""Writes the JSON Schema of the export file into docs/EXPORT.md: `python -m tests.exports.write_schema`."""

from chat_core.exports.export_file import schema_text
from tests.exports.test_json_file import DOCUMENT

if __name__ == "__main__":
    before = DOCUMENT.read_text("utf-8").rsplit("```json\n", 1)[0]
    DOCUMENT.write_text(f"{before}```json\n{schema_text()}\n```\n", "utf-8")
