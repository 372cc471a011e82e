// Calls a running service at CARSTATE_QUERY_URL with CARSTATE_TOKEN, a sandbox token, and a
// server at CARSTATE_HOSTILE, which sends answers that no service sends.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  CarstateError, Client, NORMAL_DRIVING, REASON_NOT_DRIVING, REASON_STALE, REASON_UNKNOWN, SLOW_DRIVING, THROTTLE_ANOMALY,
  THROTTLE_NORMAL, TRAFFIC_JAM,
} from "./carstate.js";

const { CARSTATE_QUERY_URL: url = "", CARSTATE_TOKEN: token = "", CARSTATE_HOSTILE: hostile = "" } = process.env;
const client = new Client(url, token, { patience: 0 });

const failure = async (call: Promise<unknown>): Promise<CarstateError> => {
  const e: unknown = await call.then(() => undefined, (e) => e);
  assert.ok(e instanceof CarstateError, String(e));
  return e;
};
const ask = (path: string) => new Client(hostile + path, token).carDrivingState("A");

test("answers", async () => {
  const a = await client.carDrivingState("SandboxJam");
  assert.ok(a.answered && a.asOf && a.requestId);
  assert.deepEqual([a.vid, a.state, a.ageSeconds], ["SandboxJam", TRAFFIC_JAM, 0]);
  const b = await client.throttleSystem("SandboxAnomaly");
  assert.ok(b.answered && b.state === THROTTLE_ANOMALY);
});

test("each name of a value", async () => {
  for (const [vid, state] of [["SandboxNormal", NORMAL_DRIVING], ["SandboxSlow", SLOW_DRIVING], ["SandboxJam", TRAFFIC_JAM]] as const) {
    const a = await client.carDrivingState(vid);
    assert.ok(a.answered && a.state === state, vid);
  }
  const b = await client.throttleSystem("SandboxNormal");
  assert.ok(b.answered && b.state === THROTTLE_NORMAL);
});

test("no answer, and why", async () => {
  for (const [vid, reason] of [["SandboxUnknown", REASON_UNKNOWN], ["SandboxStale", REASON_STALE], ["SandboxParked", REASON_NOT_DRIVING]] as const) {
    const a = await client.carDrivingState(vid);
    assert.ok(!a.answered && a.reason === reason);
  }
});

test("refusals", async () => {
  for (const [c, vid, code, kind] of [
    [client, "a-b", 400, "invalid_request"], [new Client(url, "wrong"), "SandboxJam", 401, "invalid_token"],
    [new Client(url + "/none", token), "SandboxJam", 404, "not_found"], [client, "SandboxRateLimited", 429, "rate_limited"],
    [client, "SandboxUnavailable", 503, "unavailable"],
  ] as const) {
    const e = await failure(c.carDrivingState(vid));
    assert.deepEqual([e.code, e.kind, e.retryAfter !== undefined], [code, kind, code === 429 || code === 503]);
  }
});

test("it waits as long as Retry-After says", async () => {
  const begin = performance.now();
  await failure(new Client(url, token, { patience: 1500 }).carDrivingState("SandboxRateLimited"));
  assert.ok(performance.now() - begin >= 1000);
});

test("a signal ends a wait", async () => {
  const signal = AbortSignal.timeout(50);
  await assert.rejects(new Client(url, token, { signal }).carDrivingState("SandboxUnavailable"), { name: "TimeoutError" });
});

test("no redirect is followed, and an answer is bounded", async () => {
  assert.match((await failure(ask("/redirect"))).message, /redirect/);
  assert.match((await failure(ask("/endless"))).message, /more than 64 KiB/);
});

test("no error contains the token", async () => {
  const e = await failure(ask("/repeats"));
  assert.ok(!JSON.stringify(e).includes(token) && !String(e.stack).includes(token) && e.message.includes("[token]"));
});

test("it tries again after outages and lost connections", async () => {
  for (const path of ["/third", "/dropped"]) {
    const a = await ask(path);
    assert.ok(a.answered && a.state === NORMAL_DRIVING);
  }
});

test("a status may be a string and a value unknown", async () => {
  const a = await ask("/strings");
  assert.ok(a.answered && a.state === "7");
});

test("other answers and invalid base URLs", async () => {
  for (const path of ["/other", "/html", "/list"]) assert.match((await failure(ask(path))).message, /does not speak this interface/);
  for (const wrong of ["cars.example", "ftp://a", "https://u:p@a", "https://a/?x=1"]) assert.throws(() => new Client(wrong, token), TypeError);
});
