// Cases of the state store protocol.
import { bytes, check, same, text, within } from "./client.mjs";

const GUID = "FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";
const REQUEST_TOPIC = `statestore/v1/${GUID}/command/invoke`;

const hex = (name) =>
  Array.from(bytes(name), (byte) => byte.toString(16).padStart(2, "0").toUpperCase()).join("");

// An array of blob strings in RESP3.
function array(...elements) {
  const blobs = elements.map((element) => `$${bytes(element).length}\r\n${element}\r\n`);
  return `*${elements.length}\r\n${blobs.join("")}`;
}

// Parses a hybrid logical clock, `wall ms:counter:node id`.
function clock(version) {
  const [, wall, counter, node] = /^(\d+):(\d+):(.+)$/.exec(version) ?? [];
  check(node !== undefined, `${version} is not a version`);
  return [Number(wall), Number(counter), node];
}

function isLater(left, right) {
  const [a, b] = [clock(left), clock(right)];
  const differs = a.findIndex((part, index) => part !== b[index]);
  return differs >= 0 && a[differs] > b[differs];
}

// A client of the store, on the protocol alone.
class Store {
  #count = 0;

  static async open(connections, id) {
    const store = new Store();
    store.id = id;
    store.responses = `clients/${id}/services/statestore/_any_/command/invoke/response`;
    store.notifications = `clients/statestore/v1/${GUID}/${hex(id)}/command/notify`;
    store.mqtt = await connections.connect(id);
    await store.mqtt.subscribe(store.responses, 1);
    await store.mqtt.subscribe(`${store.notifications}/+`, 1);
    return store;
  }

  timestamp() {
    return `${Date.now()}:0:${this.id}`;
  }

  // Sends a request. Options replace what a deployed client sends.
  async send(elements, { qos = 1, correlationData, user = {}, without = [] } = {}) {
    correlationData ??= Uint8Array.from({ length: 16 }, (_, index) => index);
    correlationData[0] = this.#count++;
    const userProperties = {
      __ts: this.timestamp(),
      __srcId: this.id,
      __protVer: "1.0",
      ...user,
    };
    for (const name of without) delete userProperties[name];
    const properties = {
      responseTopic: this.responses,
      correlationData,
      contentType: "application/octet-stream",
      messageExpiryInterval: 10,
      userProperties,
    };
    await this.mqtt.publish(REQUEST_TOPIC, array(...elements), { qos, properties });
    return { correlationData, sentAt: userProperties.__ts };
  }

  // The next message must be the response to this request.
  async response({ correlationData }) {
    const { topic, payload, packet } = await this.mqtt.next("response");
    same(topic, this.responses, "topic of the response");
    same(packet.qos, 1, "QoS of the response");
    const { properties } = packet;
    same(properties.correlationData, correlationData, "correlation data");
    const type = properties.contentType ?? "application/octet-stream";
    same(type, "application/octet-stream", "content type");
    same(properties.userProperties.__stat, "200", "__stat");
    return { reply: text(payload), version: properties.userProperties.__ts };
  }

  async request(elements, options) {
    const sent = await this.send(elements, options);
    return { ...(await this.response(sent)), sentAt: sent.sentAt };
  }

  async expect(elements, reply, options) {
    const response = await this.request(elements, options);
    same(response.reply, reply, elements.join(" "));
    return response;
  }

  // The next message must be this notification.
  async notification(key, elements, version) {
    const { topic, payload, packet } = await this.mqtt.next(`notification of ${elements[1]}`);
    same(topic, `${this.notifications}/${hex(key)}`, "topic of the notification");
    same(text(payload), array("NOTIFY", ...elements), "notification");
    same(packet.qos, 1, "QoS of the notification");
    if (version) same(packet.properties.userProperties.__ts, version, "version in a notification");
  }
}

async function setAndGet(connections, name) {
  const store = await Store.open(connections, `${name}-client`);
  const other = await Store.open(connections, `${name}-other`);
  const key = `${name}/key`;
  const absent = await store.expect(["GET", key], "$-1\r\n");
  same(absent.version, undefined, "version of an absent key");

  const set = await store.expect(["SET", key, "value"], "+OK\r\n");
  check(isLater(set.version, set.sentAt), `${set.version} is not later than ${set.sentAt}`);
  for (const client of [store, other]) {
    const got = await client.expect(["GET", key], "$5\r\nvalue\r\n");
    same(got.version, set.version, "version of the value");
  }
  const again = await other.expect(["SET", key, ""], "+OK\r\n");
  check(isLater(again.version, set.version), `${again.version} is not later than ${set.version}`);
  await store.expect(["GET", key], "$0\r\n\r\n");

  const refused = await store.expect(["SET", key, "new", "NX"], ":-1\r\n");
  same(refused.version, again.version, "version of a SET that was not applied");
  // The dialect of the public document.
  await store.expect(["SET", key, "new", "NX"], "-1\r\n", { without: ["__protVer"] });
  const deleted = await store.expect(["DEL", key], ":1\r\n");
  same(deleted.version, again.version, "version of the deleted value");
  await store.expect(["DEL", key], ":0\r\n");
}

async function redelivery(connections, name) {
  const store = await Store.open(connections, `${name}-client`);
  const sent = await store.send(["SET", `${name}/key`, "value", "NX"]);
  const first = await store.response(sent);
  const properties = store.mqtt.sent.findLast(({ cmd }) => cmd === "publish").properties;
  const payload = array("SET", `${name}/key`, "value", "NX");
  await store.mqtt.publish(REQUEST_TOPIC, payload, { qos: 1, properties });
  same(await store.response(sent), first, "response to the redelivered request");
  same(first.reply, "+OK\r\n", "response");
}

async function errors(connections, name) {
  const store = await Store.open(connections, `${name}-client`);
  const key = `${name}/key`;
  const set = ["SET", key, "value"];
  await store.expect(set, "-ERR missing timestamp\r\n", { without: ["__ts"] });
  await store.expect(set, "-ERR malformed timestamp\r\n", { user: { __ts: "now" } });
  const qos = "-ERR the request must be published with QoS 1\r\n";
  await store.expect(set, qos, { qos: 0 });
  await store.expect(set, qos, { qos: 2 });
  await store.expect(["NONE", key], "-ERR unknown command\r\n");
  await store.expect(["GET", ""], "-ERR the key length is zero\r\n");
  await store.expect(["GET", key], "$-1\r\n");

  await store.expect(set, "+OK\r\n", { user: { __ft: store.timestamp() } });
  const required = "-ERR a fencing token is required for this request\r\n";
  await store.expect(["SET", key, "other"], required);
  const lower =
    "-ERR the request fencing token is a lower version than " +
    "the fencing token protecting the resource\r\n";
  await store.expect(["DEL", key], lower, { user: { __ft: "1:0:token" } });
  await store.expect(["GET", key], "$5\r\nvalue\r\n");
}

async function keyNotify(connections, name) {
  const watcher = await Store.open(connections, `${name}-watcher`);
  const writer = await Store.open(connections, `${name}-writer`);
  const key = `${name}/key`;
  const registered = await watcher.expect(["KEYNOTIFY", key], "+OK\r\n");
  same(registered.version, undefined, "version in the response to KEYNOTIFY");

  const set = await writer.expect(["SET", key, "value"], "+OK\r\n");
  await watcher.notification(key, ["SET", "VALUE", "value"], set.version);
  await writer.expect(["SET", key, "other", "NX"], ":-1\r\n");
  await writer.expect(["SET", `${key}/other`, "value"], "+OK\r\n");
  await writer.expect(["DEL", key], ":1\r\n");
  await watcher.notification(key, ["DELETE"], set.version);

  const brief = await writer.expect(["SET", key, "brief", "PX", "100"], "+OK\r\n");
  await watcher.notification(key, ["SET", "VALUE", "brief"], brief.version);
  await watcher.notification(key, ["DELETE"], brief.version);
  await watcher.expect(["GET", key], "$-1\r\n");

  const last = await writer.expect(["SET", key, "last"], "+OK\r\n");
  const stop = await watcher.send(["KEYNOTIFY", key, "STOP"]);
  await watcher.notification(key, ["SET", "VALUE", "last"], last.version);
  same((await watcher.response(stop)).reply, "+OK\r\n", "KEYNOTIFY STOP");
  await writer.expect(["SET", key, "unwatched"], "+OK\r\n");
  await watcher.expect(["GET", key], "$9\r\nunwatched\r\n");
  await watcher.expect(["KEYNOTIFY", key, "STOP"], ":0\r\n");
  same(writer.mqtt.queued, 0, "messages to a client that watches nothing");
}

// The store disconnects a client whose response topic is its own request topic.
async function forbiddenResponseTopic(connections, name) {
  const store = await Store.open(connections, name);
  store.responses = REQUEST_TOPIC;
  await store.send(["GET", "key"]).catch(() => {});
  await within(store.mqtt.closed, "end of the connection");
}

export const storeCases = { setAndGet, redelivery, errors, keyNotify, forbiddenResponseTopic };
