"""Calls a running service at CARSTATE_QUERY_URL with CARSTATE_TOKEN, a sandbox token, and a
server at CARSTATE_HOSTILE, which sends answers that no service sends."""

import os
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import carstate
from carstate import CarstateError, Client

URL, TOKEN, HOSTILE = os.environ["CARSTATE_QUERY_URL"], os.environ["CARSTATE_TOKEN"], os.environ["CARSTATE_HOSTILE"]


class Sandbox(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(URL, TOKEN, patience=0)
        self.addCleanup(self.client.close)

    def test_answers(self) -> None:
        a = self.client.car_driving_state("SandboxJam")
        self.assertEqual((a.vid, a.state, a.reason, a.answered, a.age), ("SandboxJam", carstate.TRAFFIC_JAM, "", True, 0))
        self.assertTrue(a.as_of and a.request_id)
        self.assertEqual(self.client.throttle_system("SandboxAnomaly").state, carstate.THROTTLE_ANOMALY)

    def test_each_name_of_a_value(self) -> None:
        for vid, state in (("SandboxNormal", carstate.NORMAL_DRIVING), ("SandboxSlow", carstate.SLOW_DRIVING),
                           ("SandboxJam", carstate.TRAFFIC_JAM)):
            self.assertEqual(self.client.car_driving_state(vid).state, state)
        self.assertEqual(self.client.throttle_system("SandboxNormal").state, carstate.THROTTLE_NORMAL)

    def test_no_answer(self) -> None:
        for vid, reason in (("SandboxUnknown", carstate.REASON_UNKNOWN), ("SandboxStale", carstate.REASON_STALE),
                            ("SandboxParked", carstate.REASON_NOT_DRIVING)):
            a = self.client.car_driving_state(vid)
            self.assertEqual((a.state, a.reason, a.answered, a.as_of), ("", reason, False, None))

    def test_refusals(self) -> None:
        for client, vid, code, kind in (
            (self.client, "a-b", 400, "invalid_request"), (Client(URL, "wrong"), "SandboxJam", 401, "invalid_token"),
            (Client(URL + "/none", TOKEN), "SandboxJam", 404, "not_found"), (self.client, "SandboxRateLimited", 429, "rate_limited"),
            (self.client, "SandboxUnavailable", 503, "unavailable"),
        ):
            with self.assertRaises(CarstateError) as e:
                client.car_driving_state(vid)
            self.assertEqual((e.exception.code, e.exception.kind), (code, kind))
            self.assertEqual(bool(e.exception.retry_after), code in (429, 503))

    def test_waits_as_long_as_retry_after(self) -> None:
        begin = time.monotonic()
        with self.assertRaises(CarstateError):
            Client(URL, TOKEN, patience=1.5).car_driving_state("SandboxRateLimited")
        self.assertGreaterEqual(time.monotonic() - begin, 1)


class Hostile(unittest.TestCase):
    def ask(self, path: str) -> carstate.Answer:
        return Client(HOSTILE + path, TOKEN).car_driving_state("A")

    def test_no_redirect_is_followed(self) -> None:
        with self.assertRaisesRegex(CarstateError, "redirect"):
            self.ask("/redirect")

    def test_an_answer_is_bounded(self) -> None:
        with self.assertRaisesRegex(CarstateError, "more than 64 KiB"):
            self.ask("/endless")

    def test_no_error_contains_the_token(self) -> None:
        with self.assertRaises(CarstateError) as e:
            self.ask("/repeats")
        self.assertNotIn(TOKEN, str(e.exception) + repr(e.exception.__dict__) + repr(Client(HOSTILE, TOKEN)))
        self.assertIn("[token]", str(e.exception))

    def test_it_tries_again_after_outages_and_lost_connections(self) -> None:
        self.assertEqual(self.ask("/third").state, "1")
        self.assertEqual(self.ask("/dropped").state, "1")

    def test_it_keeps_one_connection(self) -> None:
        with Client(HOSTILE + "/port", TOKEN) as client:
            ports = {client.car_driving_state("A").state for _ in range(3)}
            self.assertEqual(len(ports), 1)
            client.close()
            self.assertNotIn(client.car_driving_state("A").state, ports)
            # A process that was forked has a connection of its own.
            child = os.fork()
            if child == 0:
                os._exit(client.car_driving_state("A").state in ports)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_threads_share_a_client(self) -> None:
        with Client(HOSTILE + "/port", TOKEN) as client, ThreadPoolExecutor(8) as pool:
            self.assertTrue(all(a.answered for a in pool.map(client.car_driving_state, ["A"] * 200)))

    def test_a_kept_connection_may_be_closed(self) -> None:
        with Client(HOSTILE + "/once", TOKEN, patience=0) as client:
            self.assertEqual([client.car_driving_state("A").state for _ in range(3)], ["1"] * 3)

    def test_a_status_may_be_a_string_and_a_value_unknown(self) -> None:
        self.assertEqual(self.ask("/strings").state, "7")

    def test_other_answers(self) -> None:
        for path in "/other", "/html", "/list":
            with self.assertRaisesRegex(CarstateError, "does not speak this interface"):
                self.ask(path)

    def test_invalid_base_urls(self) -> None:
        for url in "cars.example", "ftp://a", "https://u:p@a", "https://a/?x=1":
            with self.assertRaises(ValueError):
                Client(url, TOKEN)


unittest.main()
