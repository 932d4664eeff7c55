// A client of mqtt.js for the cases, in Node.js and in a browser.
import mqtt from "mqtt";

// Everything here takes milliseconds unless it hangs.
const LIMIT_MS = 15_000;

export const bytes = (text) => new TextEncoder().encode(text);
export const text = (bytes) => new TextDecoder().decode(bytes);
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export function check(condition, message) {
  if (!condition) throw new Error(message);
}

// Compares values as JSON; byte arrays by their elements.
export function same(actual, expected, subject) {
  const plain = (_, value) => {
    if (value instanceof Uint8Array) return Array.from(value);
    // In Node.js a Buffer has converted itself already.
    return value?.type === "Buffer" ? value.data : value;
  };
  const [left, right] = [actual, expected].map((value) => JSON.stringify(value, plain));
  check(left === right, `${subject} is ${left}, expected ${right}`);
}

export async function within(promise, subject, limit = LIMIT_MS) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${subject} in ${limit} ms`)), limit);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

// A connection with the messages that it received, and the packets in both directions.
class Client {
  #messages = [];
  #waiting = [];
  sent = [];
  received = [];

  constructor(raw, prepare) {
    this.raw = raw;
    // Without a listener, an error ends the process.
    raw.on("error", () => {});
    raw.on("packetsend", (packet) => this.sent.push({ ...packet }));
    raw.on("packetreceive", (packet) => this.received.push({ ...packet }));
    raw.on("message", (topic, payload, packet) => this.#add({ topic, payload, packet }));
    this.closed = new Promise((resolve) => raw.once("close", resolve));
    prepare?.(raw);
  }

  #add(message) {
    const resolve = this.#waiting.shift();
    if (resolve) resolve(message);
    else this.#messages.push(message);
  }

  // The next message. Those that came before the call count too.
  async next(subject = "message") {
    if (this.#messages.length > 0) return this.#messages.shift();
    return within(new Promise((resolve) => this.#waiting.push(resolve)), subject);
  }

  async nextText() {
    return text((await this.next()).payload);
  }

  get queued() {
    return this.#messages.length;
  }

  async subscribe(filter, qos, properties = {}) {
    const granted = await within(this.raw.subscribeAsync(filter, { qos, ...properties }), "SUBACK");
    same(granted.map((one) => one.qos), [qos], `granted QoS of ${filter}`);
  }

  async unsubscribe(filter) {
    await within(this.raw.unsubscribeAsync(filter), "UNSUBACK");
  }

  async publish(topic, payload, options = {}) {
    await within(this.raw.publishAsync(topic, payload, options), `PUBLISH to ${topic}`);
  }

  // With DISCONNECT.
  async end(reasonCode = 0) {
    await within(this.raw.endAsync(false, { reasonCode }), "end of the connection");
  }

  // Without DISCONNECT.
  async cut() {
    this.raw.stream.destroy();
    await within(this.closed, "end of the connection");
  }
}

// Connections of one case. They end with it.
export class Connections {
  #open = [];

  constructor(url) {
    this.url = url;
  }

  async connect(clientId, { prepare, ...options } = {}) {
    const raw = mqtt.connect(this.url, {
      protocolVersion: 5,
      clientId,
      clean: true,
      reconnectPeriod: 0,
      ...options,
    });
    const client = new Client(raw, prepare);
    this.#open.push(client);
    const connack = new Promise((resolve, reject) => {
      raw.once("connect", resolve);
      raw.once("error", reject);
      raw.once("close", () => reject(new Error("closed before CONNACK")));
    });
    client.connack = await within(connack, "CONNACK");
    return client;
  }

  async close() {
    await Promise.all(this.#open.map(({ raw }) => raw.endAsync(true)));
  }
}
