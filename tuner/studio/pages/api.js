// Requests to the service. Those of these pages have a header that other sites cannot send.
import { sentence } from "./format.js";

const HEADERS = { "X-Tuner-Studio": "1" };

/** A problem that the service answered with, in one sentence. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Return whether a call was refused because it has too many transfers to be traced. */
export function hasTooManyTransfers(error) {
  return error instanceof Refused && error.message.includes("transfers");
}

/** Return what to tell the reader of an error: the problem of the service, or that the page failed. */
export function problemText(error) {
  if (error instanceof Refused) return sentence(error.message);
  console.error(error);
  return "This page has failed: load it again.";
}

/** Return what a promise of the network gives; a connection that fails is a problem, too. */
async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error; // the page itself has given the request up
    throw new Refused(0, "the service does not answer: see whether it runs, and try again");
  }
}

async function request(path, options = {}) {
  const response = await reached(fetch(path, { ...options, headers: { ...HEADERS, ...options.headers } }));
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401 && !location.pathname.endsWith("/login")) {
    const back = encodeURIComponent(location.pathname + location.search + location.hash);
    location.assign(`/studio/login?next=${back}`);
  }
  throw new Refused(response.status, problem.detail ?? `the service answered ${response.status}`);
}

export async function getJson(path) {
  return reached((await request(path)).json());
}

/** Return the items of every page of a list that come after an id. */
export async function allItems(path, after = 0) {
  const items = [];
  const mark = path.includes("?") ? "&" : "?";
  for (let next = after; next !== null; ) {
    const page = await getJson(`${path}${mark}limit=1000&after=${next}`);
    items.push(...page.items);
    next = page.next;
  }
  return items;
}

export async function getText(path) {
  return reached((await request(path)).text());
}

export async function send(method, path, body, signal) {
  const options = { method, signal, headers: { "Content-Type": "application/json" } };
  return request(path, { ...options, body: body === undefined ? undefined : JSON.stringify(body) });
}

export async function uploadTopology(file) {
  const options = { method: "POST", body: file, headers: { "Content-Type": "text/plain" } };
  return (await request("/v1/topologies", options)).json();
}

/** Ask and call `onLine` with each line of the answer, until it ends or `signal` aborts it. */
export async function streamLines(path, body, signal, onLine) {
  const options = { method: "POST", signal, headers: { "Content-Type": "application/json" } };
  const response = await request(path, { ...options, body: JSON.stringify(body) });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reached(reader.read());
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) onLine(JSON.parse(line));
  }
}
