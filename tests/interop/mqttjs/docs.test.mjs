// The program of docs/without-sdk.md.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { promisify } from "node:util";

const { INTEROP_HOST: host, INTEROP_PAGE, INTEROP_PORT, INTEROP_WEBSOCKET_PORT } = process.env;
for (const url of [`mqtt://${host}:${INTEROP_PORT}`, `ws://${host}:${INTEROP_WEBSOCKET_PORT}`]) {
  test(`program of the page, ${url.split(":")[0]}`, async () => {
    const [, program] = (await readFile(INTEROP_PAGE, "utf8")).match(/```javascript\n(.*?)```/s);
    await writeFile("without-sdk.mjs", program);
    // The program does not take that long unless it hangs.
    const limits = { timeout: 120_000 };
    const { stdout } = await promisify(execFile)("node", ["without-sdk.mjs", url], limits);
    const version = String.raw`\d+:\d+:StateStore`;
    const lines = `^\\[ 'OK', '${version}' \\]\n21 ${version}\nundefined undefined\n$`;
    assert.match(stdout, new RegExp(lines));
  });
}
