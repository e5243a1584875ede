/** A client for a Sixfold server, for Node 18 and browsers. Its types are in client.d.ts. */

const ENDED = new Set(["succeeded", "failed", "canceled", "expired"]);
const RETRIED = new Set([409, 429, 502, 503, 504]);
const LONGEST_PAUSE_SECONDS = 30;

/** A response with an error status. */
export class ApiError extends Error {
  constructor(status, document, requestId) {
    super(`${status}: ${document?.error ?? "the server returned an error"}`);
    this.name = "ApiError";
    this.status = status;
    this.code = document?.code ?? "";
    this.problems = Object.fromEntries((document?.errors ?? []).map((row) => [row.input, row.message]));
    this.requestId = requestId ?? "";
  }
}

/** A prediction that ended without success; nothing was charged. */
export class PredictionFailed extends Error {
  constructor(prediction) {
    super(`${prediction.id} of ${prediction.model}: ${prediction.error ?? prediction.status}`);
    this.name = "PredictionFailed";
    this.prediction = prediction;
  }
}

const sleep = (seconds, signal) =>
  new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => { clearTimeout(timer); reject(signal.reason); };
    const timer = setTimeout(() => { signal?.removeEventListener("abort", abort); resolve(); }, seconds * 1000);
    signal?.addEventListener("abort", abort, { once: true });
  });

function pause(response, attempt) {
  if (response && (!RETRIED.has(response.status) || response.headers.get("x-should-retry") === "false")) return null;
  // Another request with the same key is under way, or a conflict that stays.
  if (response?.status === 409 && !response.headers.has("retry-after")) return null;
  const asked = Number(response?.headers.get("retry-after") ?? Number.NaN);
  if (!Number.isNaN(asked)) return asked <= LONGEST_PAUSE_SECONDS ? asked : null;
  return Math.min(0.5 * 2 ** attempt, 8) * (0.75 + Math.random() / 4);
}

function filled(template, parts = {}) {
  return template.replace(/\{(\w+)\}/g, (_, name) => {
    const value = parts[name];
    if (value === undefined || value === "") throw new TypeError(`path.${name} is missing`);
    const segments = String(value).split("/");
    if (segments.includes(".") || segments.includes("..")) {
      throw new TypeError(`path.${name} has a part . or .., which would name another path`);
    }
    return segments.map(encodeURIComponent).join("/");
  });
}

export class Client {
  constructor({ apiKey, baseUrl = "http://127.0.0.1:8600", maxRetries = 2, fetch = globalThis.fetch } = {}) {
    this.baseUrl = baseUrl.replace(/\/+$/, "");
    this.maxRetries = maxRetries;
    this._headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
    this._fetch = (...request) => fetch(...request);
  }

  /** Call an operation such as "POST /api/search"; JSON is decoded, other content is returned as a Response. */
  async call(operation, { path, query, body, idempotencyKey, signal } = {}) {
    const [method, template] = operation.split(" ");
    const url = new URL(this.baseUrl + filled(template, path));
    for (const [name, value] of Object.entries(query ?? {})) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    const key = idempotencyKey ?? (method === "POST" ? crypto.randomUUID() : undefined);
    const headers = { ...this._headers, ...(key ? { "Idempotency-Key": key } : {}) };
    let content = body;
    if (body !== undefined && !(body instanceof FormData) && !(body instanceof Blob)) {
      headers["Content-Type"] = "application/json";
      content = JSON.stringify(body);
    }
    const response = await this._send(url, { method, headers, body: content, signal });
    const isJson = (response.headers.get("content-type") ?? "").includes("json");
    if (response.status === 204) return null;
    return isJson ? response.json() : response;
  }

  /** Run a model and return the prediction when it has succeeded. Blobs among the inputs are uploaded first. */
  async run(model, input = {}, { timeoutSeconds = 600, idempotencyKey, signal } = {}) {
    const ready = { ...input };
    for (const [name, value] of Object.entries(ready)) {
      if (value instanceof Blob) ready[name] = (await this.upload(value)).id;
    }
    const started = await this.call("POST /api/containers/run", {
      body: { model, input: ready, wait: 0 },
      idempotencyKey,
      signal,
    });
    const prediction = await this.wait(started.id, { timeoutSeconds, signal });
    if (prediction.status !== "succeeded") throw new PredictionFailed(prediction);
    return prediction;
  }

  /** Return a prediction when it has ended. */
  async wait(id, { timeoutSeconds = 600, signal } = {}) {
    const deadline = Date.now() + timeoutSeconds * 1000;
    for (let seconds = 0.2; ; seconds = Math.min(seconds * 1.5, 2)) {
      const prediction = await this.call("GET /api/containers/predictions/{prediction_id}", {
        path: { prediction_id: id },
        signal,
      });
      if (ENDED.has(prediction.status)) return prediction;
      if (Date.now() >= deadline) throw new Error(`${id} has not ended within ${timeoutSeconds} seconds`);
      await sleep(Math.min(seconds, Math.max(0, deadline - Date.now()) / 1000), signal);
    }
  }

  /** Yield the events of a prediction as { event, data } until its end. */
  async *events(id, { signal } = {}) {
    const path = filled("/api/containers/predictions/{id}/events", { id });
    const response = await this._send(new URL(this.baseUrl + path), { headers: this._headers, signal });
    let text = "";
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      const frames = (text + chunk).split("\n\n");
      text = frames.pop();
      for (const frame of frames) {
        const lines = frame.split("\n");
        const values = (name) => lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).trimStart());
        const data = values("data").join("\n");
        if (data) yield { event: values("event")[0] ?? "message", data: JSON.parse(data) };
      }
    }
  }

  /** Store a file and return its id, which inputs accept. */
  upload(file, name) {
    const body = new FormData();
    body.append("file", file, name ?? file.name ?? "file");
    return this.call("POST /api/uploads", { body });
  }

  /** Return the bytes at a URL of this server, such as the output of a prediction. */
  async download(url) {
    const address = new URL(url, `${this.baseUrl}/`);
    const headers = address.origin === new URL(this.baseUrl).origin ? this._headers : {};
    const response = await this._send(address, { headers });
    return new Uint8Array(await response.arrayBuffer());
  }

  async _send(url, options) {
    for (let attempt = 0; ; attempt += 1) {
      let response = null;
      let failure;
      try {
        response = await this._fetch(url, options);
        if (response.ok) return response;
        const document = await response.json().catch(() => null);
        failure = new ApiError(response.status, document, response.headers.get("x-request-id"));
      } catch (error) {
        if (options.signal?.aborted) throw error;
        failure = error;
      }
      const seconds = pause(response, attempt);
      if (attempt >= this.maxRetries || seconds === null) throw failure;
      await sleep(seconds, options.signal);
    }
  }
}
