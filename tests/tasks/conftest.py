import pytest

from lenity.tasks.sandbox import ENVIRONMENT as ALLOWED
from lenity.tasks.sources import ENVIRONMENT as DATA
from tests.tasks.rows import write_all


@pytest.fixture(autouse=True)
def nothing_from_outside(request, monkeypatch):
    """Neither data nor permissions of whoever runs the tests, but where a test asks for them."""
    monkeypatch.delenv(ALLOWED, raising=False)
    if "real_data" not in request.fixturenames:
        monkeypatch.delenv(DATA, raising=False)


@pytest.fixture
def data(tmp_path):
    return write_all(tmp_path)
