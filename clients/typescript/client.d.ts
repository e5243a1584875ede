import type { HostingSchemas, Operations, PlatformSchemas } from "./operations.js";

export type * from "./operations.js";
export type Prediction = HostingSchemas["Prediction"];

/** The parameters of an operation: its path, query and body. */
export type Parameters<Name extends keyof Operations> = Omit<Operations[Name], "response"> & {
  idempotencyKey?: string;
  signal?: AbortSignal;
};

type Optional<Value> = {} extends Value ? [parameters?: Value] : [parameters: Value];

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly problems: Record<string, string>;
  readonly requestId: string;
}

export class PredictionFailed extends Error {
  readonly prediction: Prediction;
}

export interface ClientOptions {
  apiKey?: string;
  baseUrl?: string;
  maxRetries?: number;
  fetch?: typeof globalThis.fetch;
}

export class Client {
  constructor(options?: ClientOptions);
  readonly baseUrl: string;
  /** Call an operation such as "POST /api/search"; JSON is decoded, other content is returned as a Response. */
  call<Name extends keyof Operations>(
    operation: Name,
    ...parameters: Optional<Parameters<Name>>
  ): Promise<Operations[Name]["response"]>;
  /** Run a model and return the prediction when it has succeeded. Blobs among the inputs are uploaded first. */
  run(
    model: string,
    input?: Record<string, unknown>,
    options?: { timeoutSeconds?: number; idempotencyKey?: string; signal?: AbortSignal },
  ): Promise<Prediction>;
  /** Return a prediction when it has ended. */
  wait(id: string, options?: { timeoutSeconds?: number; signal?: AbortSignal }): Promise<Prediction>;
  /** Yield the events of a prediction until its end. */
  events(id: string, options?: { signal?: AbortSignal }): AsyncGenerator<{ event: string; data: unknown }>;
  /** Store a file and return its id, which inputs accept. */
  upload(file: Blob, name?: string): Promise<PlatformSchemas["Upload"]>;
  /** Return the bytes at a URL of this server, such as the output of a prediction. */
  download(url: string): Promise<Uint8Array>;
}
