/**
 * Queries a carstate service: how do cars drive, and are their throttle systems healthy?
 *
 * It needs only fetch: Node.js 20 or newer, or a browser on the service's own origin. The token is
 * sent in the query, as the interface requires. No error of this module contains it.
 */

const drivingPath = "/api/ic/if_dt_tflow_car_driving_state";
const throttlePath = "/api/ic/if_dt_amo_throttle_system";

export const NORMAL_DRIVING = "1", SLOW_DRIVING = "2", TRAFFIC_JAM = "3";
export const THROTTLE_ANOMALY = "0", THROTTLE_NORMAL = "1";
export const REASON_UNKNOWN = "unknown", REASON_STALE = "stale", REASON_NOT_DRIVING = "not_driving";

const mostTries = 4;
const mostBody = 64 << 10; // bytes; no answer is longer
const firstDelay = 100; // ms before the first retry without Retry-After; it doubles
const outages = [502, 503, 504];

/** A type with the known values, and with other strings, which a later version may send. */
type Open<T extends string> = T | (string & {});

export type DrivingState = Open<typeof NORMAL_DRIVING | typeof SLOW_DRIVING | typeof TRAFFIC_JAM>;
export type ThrottleState = Open<typeof THROTTLE_ANOMALY | typeof THROTTLE_NORMAL>;
export type Reason = Open<typeof REASON_UNKNOWN | typeof REASON_STALE | typeof REASON_NOT_DRIVING>;

/** An answer, or why there is none. */
export type Answer<State extends string> =
  | { answered: true; vid: string; state: State; asOf?: Date; ageSeconds?: number; requestId: string }
  | { answered: false; vid: string; reason: Reason; requestId: string };

export interface Options {
  /** How long one attempt may take, in ms. The default is 10,000. */
  timeout?: number;
  /** How long after its start a call may be retried, in ms. The default is 30,000; 0 means never. */
  patience?: number;
  /** A function to use in place of fetch. */
  fetch?: typeof fetch;
  /** A signal that ends all calls. */
  signal?: AbortSignal;
}

/** A call failed. The message says why, in one line without the token. */
export class CarstateError extends Error {
  override name = "CarstateError";
  constructor(
    message: string,
    /** The HTTP status; 0 if there was no answer. */
    readonly code = 0,
    /** Seconds that the service asks the client to wait. */
    readonly retryAfter?: number,
    /** The service's ID of this request. Give it to the operator when you report a problem. */
    readonly requestId = "",
    /** The connection failed, or a gateway cannot reach the service: retry soon. */
    readonly broken = false,
  ) {
    super(message);
  }
  /** The first word of the service's message, such as rate_limited; "" if it has none. */
  get kind(): string {
    return /^([a-z_]+): /.exec(this.message)?.[1] ?? "";
  }
}

export class Client {
  readonly #base: string;
  readonly #token: string;
  readonly #options: Options;

  constructor(baseURL: string, token: string, options: Options = {}) {
    const u = URL.canParse(baseURL) ? new URL(baseURL) : undefined;
    if (!u || !/^https?:$/.test(u.protocol) || u.username || u.password || u.search || u.hash) {
      throw new TypeError("the base URL must look like https://cars.example or http://127.0.0.1:8080, without user, query and fragment");
    }
    if (!token) throw new TypeError("the token is missing: it is the access token that the operator gave to you, cst_… or cstest_…");
    this.#base = u.href.replace(/\/+$/, "");
    this.#token = token;
    this.#options = options;
  }

  /** Asks whether the vehicle drives normally, slowly, or is in a traffic jam. */
  carDrivingState(vid: string): Promise<Answer<DrivingState>> {
    return this.#ask(drivingPath, "vehicle_runing_state", vid); // the interface spells it like this
  }

  /** Asks whether the throttle system of the vehicle is normal or has an anomaly. */
  throttleSystem(vid: string): Promise<Answer<ThrottleState>> {
    return this.#ask(throttlePath, "throttle_system", vid);
  }

  async #ask<S extends string>(path: string, field: string, vid: string): Promise<Answer<S>> {
    const begin = performance.now();
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#once<S>(path, field, vid);
      } catch (e) {
        if (!(e instanceof CarstateError) || attempt === mostTries) throw e;
        let wait = 0, spread = 0;
        if (e.retryAfter && (e.code === 429 || outages.includes(e.code))) {
          [wait, spread] = [e.retryAfter * 1000, e.retryAfter * 250];
        } else if (e.broken) {
          wait = spread = firstDelay * 2 ** (attempt - 1) / 2;
        }
        if (wait === 0 || performance.now() - begin + wait > (this.#options.patience ?? 30_000)) throw e;
        await this.#sleep(wait + Math.random() * spread);
      }
    }
  }

  #sleep(ms: number): Promise<void> {
    const { signal } = this.#options;
    return new Promise((resolve, reject) => {
      const end = () => { clearTimeout(timer); reject(signal?.reason); };
      const timer = setTimeout(() => { signal?.removeEventListener("abort", end); resolve(); }, ms);
      if (signal?.aborted) end();
      signal?.addEventListener("abort", end, { once: true });
    });
  }

  async #once<S extends string>(path: string, field: string, vid: string): Promise<Answer<S>> {
    const { signal, timeout = 10_000, fetch: ask = fetch } = this.#options;
    const limit = AbortSignal.timeout(timeout);
    let response: Response, body: string | undefined;
    try {
      response = await ask(`${this.#base}${path}?${new URLSearchParams({ access_token: this.#token, vid })}`, {
        headers: { Accept: "application/json" },
        redirect: "manual", // a redirect would send the token elsewhere
        cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer",
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
      });
      body = await bounded(response);
    } catch (e) {
      signal?.throwIfAborted();
      // The original error is not included: it may contain the address, and so the token.
      const cause = e instanceof Error && e.cause instanceof Error ? e.cause : e;
      const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
      const why = limit.aborted ? "it did not answer in time" : code || "the connection failed";
      throw new CarstateError(`cannot reach ${new URL(this.#base).origin}: ${why}`, 0, undefined, "", !/CERT|ALTNAME|ENOTFOUND|ERR_SSL/.test(code));
    }
    return this.#parse<S>(response, body, field, vid);
  }

  #parse<S extends string>(response: Response, body: string | undefined, field: string, vid: string): Answer<S> {
    const header = response.headers;
    const requestId = this.#redact(header.get("X-Request-Id") ?? "");
    const bad = (why: string) => new CarstateError(`the server does not speak this interface: ${why}`, response.status, undefined, requestId);
    if (body === undefined) throw bad("its answer has more than 64 KiB");
    const envelope = object(parse(body));
    let code = response.status;
    if (code !== 200 || envelope?.code !== undefined && String(envelope.code) !== "200") {
      let message = envelope ? this.#redact(String(envelope.msg ?? "")) : "";
      if (!message && (response.type === "opaqueredirect" || code >= 300 && code < 400)) {
        message = "the server answers with a redirect, which is not followed because it would send the token elsewhere";
      }
      if (code === 200) code = Number(envelope?.code) || code; // the HTTP status does not show the failure
      const wait = /^\d{1,9}$/.exec(header.get("Retry-After") ?? "");
      throw new CarstateError(message || `the server answers HTTP ${code}, but does not speak this interface: is this its base URL?`, code,
        wait ? Math.min(Number(wait[0]), 365 * 86_400) : undefined, requestId, outages.includes(code));
    }
    const record = envelope?.code === undefined ? undefined : object(envelope.data);
    if (!record) throw bad("the envelope has no record");
    if (record.vid !== undefined && String(record.vid) !== vid) throw bad("the record is about another vehicle");
    if (String(record.status) !== "1") { // a number; other services send a string
      return { answered: false, vid, reason: this.#redact(header.get("Carstate-Reason") ?? ""), requestId };
    }
    const answer: Answer<S> = { answered: true, vid, state: this.#redact(String(record[field] ?? "")) as S, requestId };
    const asOf = Date.parse(header.get("Last-Modified") ?? "");
    if (!Number.isNaN(asOf)) {
      const now = Date.parse(header.get("Date") ?? "") || Date.now();
      answer.asOf = new Date(asOf);
      answer.ageSeconds = Math.max(0, (now - asOf) / 1000);
    }
    return answer;
  }

  #redact(text: string): string {
    for (const secret of [this.#token, encodeURIComponent(this.#token)]) {
      if (secret) text = text.replaceAll(secret, "[token]");
    }
    return text.replace(/\p{C}/gu, " ").slice(0, 500);
  }
}

/** Returns the body of a response, or undefined if it is larger than 64 KiB. */
async function bounded(response: Response): Promise<string | undefined> {
  const reader = response.body?.getReader();
  if (!reader) return "";
  const text = new TextDecoder();
  let all = "";
  for (let size = 0; ;) {
    const { done, value } = await reader.read();
    if (done) return all + text.decode();
    size += value.length;
    if (size > mostBody) {
      await reader.cancel();
      return undefined;
    }
    all += text.decode(value, { stream: true });
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function object(v: unknown): Record<string, unknown> | undefined {
  return typeof v === "object" && v !== null && !Array.isArray(v) ? v as Record<string, unknown> : undefined;
}
