// Runs the cases in a web page and posts their results to the server of the page.
import { Connections } from "./client.mjs";
import { cases } from "./cases.mjs";

const url = new URLSearchParams(location.search).get("url");
const post = (path, body) => fetch(path, { method: "POST", body: JSON.stringify(body) });

async function outcome(name, run) {
  const connections = new Connections(url);
  try {
    await run(connections, `mqttjs-browser-${name}`);
    return null;
  } catch (error) {
    return String(error?.stack ?? error);
  } finally {
    await connections.close();
  }
}

const results = cases.map(async ([name, run]) => [name, await outcome(name, run)]);
await post("/results", Object.fromEntries(await Promise.all(results)));
