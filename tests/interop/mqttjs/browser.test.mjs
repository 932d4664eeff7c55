// The cases in a web page, in headless Chromium.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { cases } from "./cases.mjs";

const { INTEROP_BROWSER: browser, INTEROP_HOST, INTEROP_ORIGIN, INTEROP_WEBSOCKET_PORT } =
  process.env;
const LIMIT_MS = 60_000;
const MODULES = ["page.html", "page.mjs", "client.mjs", "cases.mjs", "store.mjs"];
const FILES = {
  ...Object.fromEntries(MODULES.map((name) => [`/${name}`, name])),
  "/mqtt.esm.js": "node_modules/mqtt/dist/mqtt.esm.js",
};

// Serves the page. `results` receives the first body that the page posts.
function serve(results) {
  return createServer(async (request, response) => {
    if (request.method === "POST") {
      const chunks = await request.toArray();
      response.end();
      results(JSON.parse(Buffer.concat(chunks).toString()));
      return;
    }
    const file = FILES[new URL(request.url, "http://page").pathname];
    if (!file) {
      response.writeHead(404).end();
      return;
    }
    const type = file.endsWith(".html") ? "text/html" : "text/javascript";
    const content = await readFile(new URL(file, import.meta.url));
    response.writeHead(200, { "content-type": type }).end(content);
  }).listen(0, "127.0.0.1");
}

// Opens the page as one of this origin, and returns the error of each case, or null.
async function open(origin) {
  let server;
  const posted = new Promise((resolve) => (server = serve(resolve)));
  await once(server, "listening");
  const profile = await mkdtemp(join(tmpdir(), "interop-"));
  const broker = `ws://${INTEROP_HOST}:${INTEROP_WEBSOCKET_PORT}`;
  const process = spawn(
    browser,
    [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--disable-background-networking",
      "--no-first-run",
      `--user-data-dir=${profile}`,
      `--host-resolver-rules=MAP ${new URL(origin).host}:80 127.0.0.1:${server.address().port}`,
      `${origin}/page.html?url=${broker}`,
    ],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  let log = "";
  process.stderr.on("data", (chunk) => (log += chunk));
  const ended = once(process, "exit");
  let timer;
  const late = new Promise((_, reject) => {
    const fail = () => reject(new Error(`no results; the browser printed:\n${log}`));
    timer = setTimeout(fail, LIMIT_MS);
  });
  const failed = ended.then(() => {
    throw new Error(`the browser ended:\n${log}`);
  });
  try {
    return await Promise.race([posted, late, failed]);
  } finally {
    clearTimeout(timer);
    failed.catch(() => {});
    process.kill("SIGKILL");
    await ended;
    server.close();
    server.closeAllConnections();
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

const skip = browser ? false : "no browser";

describe("browser", { skip }, () => {
  let results;
  before(async () => (results = await open(INTEROP_ORIGIN)));
  for (const [name] of cases) {
    test(name, () => {
      assert.ok(name in results, "no result");
      assert.equal(results[name], null);
    });
  }
});

test("a page of another origin cannot connect", { skip }, async () => {
  for (const [name, error] of Object.entries(await open("http://other.example"))) {
    assert.notEqual(error, null, `${name} passed`);
  }
});
