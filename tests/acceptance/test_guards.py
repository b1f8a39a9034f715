"""What abby answers when guards die, dawdle or talk nonsense."""

import http.server
import ssl
import threading

import pytest

from tests.acceptance.deployment import in_processing, submitting
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def nonsense(restartable):
    """Return the address of something that has a guard's certificate and answers what no guard answers."""

    class Nonsense(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def do_GET(self) -> None:
            self.send_error(418)

        def log_message(self, *_: object) -> None:
            pass

    tls = restartable.product.abby.folder / "tls"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "guard.crt", tls / "guard.key")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nonsense) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"https://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.contract("6 fail over")
def test_a_message_in_a_guard_that_is_killed_is_finished_by_another(restartable, plain, pausable_clamd):
    pausable_clamd.pause()
    with submitting(restartable, plain, 1, pausable_clamd) as calls:
        assert wait_until(lambda: in_processing(restartable, 0) + in_processing(restartable, 1) == 1)
        holder = 0 if in_processing(restartable, 0) else 1
        restartable.product.guards[holder].kill()
        assert wait_until(lambda: in_processing(restartable, 1 - holder) == 1)
    restartable.product.guards[holder].start()

    result = calls[0].result().result
    assert restartable.client().explained(result["ggrid"])["guard"] == restartable.product.guards[1 - holder].name


def test_guards_end_the_analysis_of_an_abby_that_is_killed(restartable, plain, pausable_clamd):
    pausable_clamd.pause()
    with submitting(restartable, plain, 1, pausable_clamd) as calls:
        assert wait_until(lambda: in_processing(restartable, 0) + in_processing(restartable, 1) == 1)
        restartable.product.abby.kill()
        assert wait_until(lambda: in_processing(restartable, 0) + in_processing(restartable, 1) == 0)
    restartable.product.abby.start()
    assert calls[0].exception() is not None


@pytest.mark.spec("1 longRequestTimeout")
@pytest.mark.spec("1 restart")
@pytest.mark.contract("5 analysis_timeout")
def test_an_analysis_longer_than_the_timeout_is_answered_504(restartable, plain, pausable_clamd):
    restartable.product.abby.configure({"serviceProviders": {"core": {"longRequestTimeout": 700}}})
    restartable.product.abby.restart()
    pausable_clamd.pause()
    try:
        answer = restartable.client().submit(plain)
    finally:
        pausable_clamd.resume()
        restartable.product.abby.configure({"serviceProviders": {"core": {"longRequestTimeout": 3_600_000}}})

    assert (answer.status, answer.error) == (504, "analysis_timeout")


@pytest.mark.spec("1 serviceProviders")
@pytest.mark.contract("5 core_error")
def test_a_malformed_guard_answer_differs_from_a_guard_that_is_down(restartable, plain, nonsense):
    guards = [guard.url for guard in restartable.product.guards]
    restartable.product.abby.configure({"serviceProviders": {"core": {"hosts": [nonsense]}}})
    restartable.product.abby.restart()
    try:
        answer = restartable.client().submit(plain)
    finally:
        restartable.product.abby.configure({"serviceProviders": {"core": {"hosts": guards}}})
        restartable.product.abby.restart()

    assert (answer.status, answer.error) == (502, "core_error")
    assert restartable.client().submit(plain).status == 200
