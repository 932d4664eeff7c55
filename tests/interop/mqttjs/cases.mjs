// Cases of MQTT. Each gets its connections and a name that no other case uses in topics and ids.
import { check, same, sleep, text, within } from "./client.mjs";
import { storeCases } from "./store.mjs";

const SESSION_TAKEN_OVER = 0x8e;
const DISCONNECT_WITH_WILL = 0x04;
const ALL_BYTES = Uint8Array.from({ length: 256 }, (_, index) => index);

async function connect(connections, name) {
  const client = await connections.connect(name);
  same(client.connack.sessionPresent, false, "session present");
  same(client.connack.reasonCode, 0, "reason code");
  const { receiveMaximum, maximumPacketSize, topicAliasMaximum } = client.connack.properties;
  check(receiveMaximum > 0, `Receive Maximum ${receiveMaximum}`);
  check(maximumPacketSize > 0, `Maximum Packet Size ${maximumPacketSize}`);
  check(topicAliasMaximum > 0, `Topic Alias Maximum ${topicAliasMaximum}`);

  const unnamed = await connections.connect("");
  check(unnamed.connack.properties.assignedClientIdentifier, "no client id was assigned");

  const disconnect = new Promise((resolve) => client.raw.once("disconnect", resolve));
  await connections.connect(name);
  const { reasonCode } = await within(disconnect, "DISCONNECT");
  same(reasonCode, SESSION_TAKEN_OVER, "reason code after a takeover");
  await within(client.closed, "end of the connection that was taken over");
}

async function qos(connections, name) {
  const [two, one, zero, publisher] = await Promise.all(
    ["two", "one", "zero", "publisher"].map((id) => connections.connect(`${name}-${id}`)),
  );
  await two.subscribe(`${name}/+`, 2);
  await one.subscribe(`${name}/+`, 1);
  await zero.subscribe(`${name}/+`, 0);
  const properties = {
    payloadFormatIndicator: false,
    contentType: "application/octet-stream",
    responseTopic: `${name}/response`,
    correlationData: ALL_BYTES,
    userProperties: { b: ["1", "2"], a: "é" },
  };
  const acknowledgements = { 0: [], 1: ["puback"], 2: ["pubrec", "pubcomp"] };
  for (const sent of [0, 1, 2]) {
    publisher.received = [];
    await publisher.publish(`${name}/${sent}`, ALL_BYTES, { qos: sent, properties });
    same(publisher.received.map(({ cmd }) => cmd), acknowledgements[sent], "acknowledgements");
    for (const [subscriber, granted] of [[two, 2], [one, 1], [zero, 0]]) {
      const { topic, payload, packet } = await subscriber.next();
      same(topic, `${name}/${sent}`, "topic");
      same(payload, ALL_BYTES, "payload");
      same(packet.qos, Math.min(sent, granted), `QoS of ${sent} for a subscriber with ${granted}`);
      for (const [property, value] of Object.entries(properties)) {
        same(packet.properties[property], value, property);
      }
    }
  }
  await publisher.publish(`${name}/last`, "last", { qos: 1 });
  for (const subscriber of [two, one, zero]) same(await subscriber.nextText(), "last", "message");
}

async function retained(connections, name) {
  const publisher = await connections.connect(`${name}-publisher`);
  const live = await connections.connect(`${name}-live`);
  await live.subscribe(`${name}/+`, 1);
  const properties = { userProperties: { a: "b" } };
  await publisher.publish(`${name}/kept`, "first", { qos: 1, retain: true });
  await publisher.publish(`${name}/kept`, "second", { qos: 1, retain: true, properties });
  for (const expected of ["first", "second"]) {
    const { payload, packet } = await live.next();
    same([text(payload), packet.retain], [expected, false], "message to a subscriber");
  }

  const late = await connections.connect(`${name}-late`);
  await late.subscribe(`${name}/+`, 1);
  const { topic, payload, packet } = await late.next("retained message");
  same([topic, text(payload)], [`${name}/kept`, "second"], "retained message");
  same([packet.retain, packet.qos], [true, 1], "retain flag and QoS");
  same(packet.properties.userProperties, properties.userProperties, "user properties");

  await publisher.publish(`${name}/kept`, "", { qos: 1, retain: true });
  const later = await connections.connect(`${name}-later`);
  await later.subscribe(`${name}/+`, 1);
  await publisher.publish(`${name}/other`, "live", { qos: 1 });
  same(await later.nextText(), "live", "message after the retained one was removed");
}

async function will(connections, name) {
  const watcher = await connections.connect(`${name}-watcher`);
  await watcher.subscribe(`${name}/+`, 1);
  const properties = { contentType: "text/plain", userProperties: { a: "b" } };
  const withWill = (payload) =>
    connections.connect(name, { will: { topic: `${name}/will`, payload, qos: 1, properties } });

  await (await withWill("cut")).cut();
  const { topic, payload, packet } = await watcher.next("will");
  same([topic, text(payload), packet.qos], [`${name}/will`, "cut", 1], "will");
  for (const [property, value] of Object.entries(properties)) {
    same(packet.properties[property], value, property);
  }

  await (await withWill("requested")).end(DISCONNECT_WITH_WILL);
  same(await watcher.nextText(), "requested", "will after DISCONNECT with reason 0x04");

  await (await withWill("removed")).end();
  // With the same client id, a takeover before the DISCONNECT is read would publish the will.
  const after = await connections.connect(`${name}-after`);
  await after.publish(`${name}/after`, "after", { qos: 1 });
  same(await watcher.nextText(), "after", "message after a normal DISCONNECT");
}

async function shared(connections, name) {
  const members = await Promise.all(
    ["a", "b"].map((id) => connections.connect(`${name}-${id}`)),
  );
  for (const member of members) {
    await member.subscribe(`$share/${name}/${name}/jobs/+`, 1);
    await member.subscribe(`${name}/all`, 1);
  }
  const publisher = await connections.connect(`${name}-publisher`);
  const jobs = Array.from({ length: 20 }, (_, index) => String(100 + index));
  for (const job of jobs) await publisher.publish(`${name}/jobs/${job}`, job, { qos: 1 });
  await publisher.publish(`${name}/all`, "end", { qos: 1 });
  const counts = [];
  const done = [];
  for (const member of members) {
    let job;
    for (counts.push(0); (job = await member.nextText()) !== "end"; ) {
      counts[counts.length - 1] += 1;
      done.push(job);
    }
  }
  same(done.sort(), jobs, "jobs of all members");
  check(Math.min(...counts) > 0, `jobs per member: ${counts}`);

  await members[0].unsubscribe(`$share/${name}/${name}/jobs/+`);
  for (const job of ["x", "y"]) await publisher.publish(`${name}/jobs/${job}`, job, { qos: 1 });
  for (const job of ["x", "y"]) same(await members[1].nextText(), job, "job of the last member");
}

async function topicAlias(connections, name) {
  const publisher = await connections.connect(`${name}-out`, { autoAssignTopicAlias: true });
  const subscriber = await connections.connect(`${name}-in`, {
    properties: { topicAliasMaximum: 5 },
  });
  await subscriber.subscribe(`${name}/+`, 1);
  for (const payload of ["1", "2", "3"]) {
    await publisher.publish(`${name}/aliased`, payload, { qos: 1 });
    const message = await subscriber.next();
    same([message.topic, text(message.payload)], [`${name}/aliased`, payload], "message");
  }
  const publishes = (packets) => packets.filter(({ cmd }) => cmd === "publish");
  for (const [direction, packets] of [["out", publisher.sent], ["in", subscriber.received]]) {
    const [first, ...others] = publishes(packets);
    check(first.properties.topicAlias > 0, `${direction}: the first message has no alias`);
    same(first.topic, `${name}/aliased`, `${direction}: first topic`);
    same(others.map(({ topic }) => topic), ["", ""], `${direction}: further topics`);
  }
}

async function messageExpiry(connections, name) {
  const session = { clean: false, properties: { sessionExpiryInterval: 60 } };
  const offline = await connections.connect(`${name}-offline`, session);
  await offline.subscribe(`${name}/+`, 1);
  await offline.end();
  const publisher = await connections.connect(`${name}-publisher`);
  const publish = (topic, payload, seconds, retain) => {
    const properties = { messageExpiryInterval: seconds };
    return publisher.publish(topic, payload, { qos: 1, retain, properties });
  };
  await publish(`${name}/queued`, "short", 1, false);
  await publish(`${name}/queued`, "long", 60, false);
  await publish(`${name}-retained/short`, "short", 1, true);
  await publish(`${name}-retained/long`, "long", 60, true);
  await sleep(2_100);

  const back = await connections.connect(`${name}-offline`, session);
  const late = await connections.connect(`${name}-late`);
  await late.subscribe(`${name}-retained/+`, 1);
  for (const [client, subject] of [[back, "queued"], [late, "retained"]]) {
    const { payload, packet } = await client.next(`${subject} message`);
    same(text(payload), "long", `first ${subject} message`);
    const left = packet.properties.messageExpiryInterval;
    check(left > 0 && left <= 58, `${subject} message expires in ${left} s, expected 58 s`);
  }
  for (const topic of [`${name}/live`, `${name}-retained/live`]) {
    await publisher.publish(topic, "live", { qos: 1 });
  }
  for (const client of [back, late]) same(await client.nextText(), "live", "next message");
}

async function resume(connections, name) {
  const session = { clean: false, properties: { sessionExpiryInterval: 60 } };
  const first = await connections.connect(name, session);
  same(first.connack.sessionPresent, false, "session present at first");
  await first.subscribe(`${name}/+`, 2);
  await first.end();
  const publisher = await connections.connect(`${name}-publisher`);
  const sent = ["1", "2", "3", "4"];
  for (const payload of sent) await publisher.publish(`${name}/one`, payload, { qos: 1 });
  for (const payload of sent) await publisher.publish(`${name}/two`, payload, { qos: 2 });

  const second = await connections.connect(name, session);
  same(second.connack.sessionPresent, true, "session present");
  const received = { [`${name}/one`]: [], [`${name}/two`]: [] };
  for (let count = 0; count < 2 * sent.length; count += 1) {
    const { topic, payload } = await second.next("queued message");
    received[topic].push(text(payload));
  }
  same(received, { [`${name}/one`]: sent, [`${name}/two`]: sent }, "queued messages");
  await second.end();

  const clean = await connections.connect(name);
  same(clean.connack.sessionPresent, false, "session present after Clean Start");
  await clean.subscribe(`${name}/other/+`, 1);
  await publisher.publish(`${name}/one`, "lost", { qos: 1 });
  await publisher.publish(`${name}/other/live`, "live", { qos: 1 });
  same(await clean.nextText(), "live", "message after Clean Start");
}

async function unacknowledged(connections, name) {
  const session = { clean: false, properties: { sessionExpiryInterval: 60 } };
  // mqtt.js acknowledges a message when this handler calls its callback.
  const prepare = (raw) => (raw.handleMessage = () => {});
  const first = await connections.connect(name, { ...session, prepare });
  await first.subscribe(`${name}/+`, 1);
  const publisher = await connections.connect(`${name}-publisher`);
  await publisher.publish(`${name}/one`, "unacknowledged", { qos: 1 });
  same((await first.next()).packet.dup, false, "DUP at first");
  await first.cut();
  const second = await connections.connect(name, session);
  same(second.connack.sessionPresent, true, "session present");
  const { payload, packet } = await second.next("redelivered message");
  same([text(payload), packet.dup], ["unacknowledged", true], "redelivered message and DUP");
}

export const cases = Object.entries({
  connect,
  qos,
  retained,
  will,
  shared,
  topicAlias,
  messageExpiry,
  resume,
  unacknowledged,
  ...storeCases,
});
