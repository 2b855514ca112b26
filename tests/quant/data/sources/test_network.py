import pytest

from quant.data.sources import network
from quant.errors import SourceError


def test_certificates_that_are_missing_are_named(tmp_path):
    with pytest.raises(SourceError, match=r"none\.pem: cannot read certificates"):
        network.certificates(str(tmp_path / "none.pem"))


def test_certificates_of_the_environment_are_used(tmp_path, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "env.pem"))
    with pytest.raises(SourceError, match=r"env\.pem: cannot read certificates"):
        network.certificates()
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    assert network.certificates() is True


def test_a_download_that_is_too_large_is_refused(tmp_path, monkeypatch):
    (tmp_path / "large").write_bytes(bytes(100))
    monkeypatch.setattr(network, "LARGEST_DOWNLOAD", 99)
    with network.client(verify=True) as opened, pytest.raises(SourceError, match=r"'out' is larger than 99 bytes"):
        network.download(opened, (tmp_path / "large").as_uri(), tmp_path / "out", hashes={})


def test_a_missing_download_says_its_status(tmp_path):
    with network.client(verify=True) as opened, pytest.raises(SourceError, match=r"status 404"):
        network.download(opened, (tmp_path / "none").as_uri(), tmp_path / "out", hashes={})


def test_the_network_is_asked_again_when_it_stumbles():
    import httpx2

    answers = iter([httpx2.ConnectError("no"), httpx2.ReadTimeout("slow"), "answer"])

    def ask():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert network.patiently(ask, "https://index.example/") == "answer"
