// Talking to the service.

let key = sessionStorage.getItem("lehd-key") || "";
let askForKey = async () => "";

export function onKeyNeeded(ask) {
  askForKey = ask;
}

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** fetch with the key, asking for one where it is missing; throws a Refusal with the service's own words. */
export async function ask(path, options = {}) {
  for (;;) {
    const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal(0, "The service does not answer. Is `lehd serve` still running?");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      const given = await askForKey();
      if (given) {
        key = given;
        sessionStorage.setItem("lehd-key", key);
        continue;
      }
    }
    let message = `The service answered ${response.status}.`;
    try {
      message = (await response.json()).error || message;
    } catch {
      // not JSON: the status will do
    }
    throw new Refusal(response.status, message);
  }
}

export const getJSON = async (path) => (await ask(path)).json();
export const getText = async (path) => (await ask(path)).text();
export const post = async (path, body, type) =>
  (await ask(path, { method: "POST", body, headers: type ? { "content-type": type } : {} })).json();
export const remove = async (path) => (await ask(path, { method: "DELETE" })).json();

export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** The events of a job, one after the other: [kind, data]. */
export async function* events(id, signal) {
  const response = await ask(`/jobs/${id}/events`, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const kind = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (kind && data) yield [kind, JSON.parse(data)];
    }
  }
}
