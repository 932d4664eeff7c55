// The cases in Node.js, over TCP and over WebSocket.
import { describe, test } from "node:test";
import { Connections } from "./client.mjs";
import { cases } from "./cases.mjs";

const { INTEROP_HOST: host, INTEROP_PORT, INTEROP_WEBSOCKET_PORT } = process.env;
const transports = {
  tcp: `mqtt://${host}:${INTEROP_PORT}`,
  websocket: `ws://${host}:${INTEROP_WEBSOCKET_PORT}`,
};
for (const [transport, url] of Object.entries(transports)) {
  describe(transport, { concurrency: true }, () => {
    for (const [name, run] of cases) {
      test(name, async () => {
        const connections = new Connections(url);
        try {
          await run(connections, `mqttjs-${transport}-${name}`);
        } finally {
          await connections.close();
        }
      });
    }
  });
}
