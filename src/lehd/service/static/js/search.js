// A job, from the button to the last improvement.

import { ask, events, getJSON, post, query, remove } from "./api.js";

export const ACTIVE = ["queued", "running"];

export class Search {
  /** `hear(kind, data)` is told of everything: state, progress, incumbent, end, lost. */
  constructor(hear) {
    this.hear = hear;
    this.id = null;
    this.state = null;
    this.abort = null;
    this.turn = 0; // goes up whenever what was asked for is no longer wanted
  }

  get busy() {
    return ACTIVE.includes(this.state);
  }

  /** A new job; false if the page went on to something else before it was there. */
  async start(request, parameters) {
    this.forget();
    const { turn } = this;
    const record = await post(`/jobs${query({ ...request.parameters, ...parameters })}`, request.body, request.type);
    return this.followIfWanted(record, turn);
  }

  followIfWanted(record, turn) {
    const wanted = turn === this.turn;
    if (wanted) this.follow(record);
    else remove(`/jobs/${record.id}`).catch(() => {});
    return wanted;
  }

  /** A job that is there already, such as one from the address bar. */
  async open(id) {
    const [record, picture, response] = await Promise.all([getJSON(`/jobs/${id}`), getJSON(`/jobs/${id}/problem`), ask(`/jobs/${id}/request`)]);
    const parameters = Object.fromEntries(new URLSearchParams(response.headers.get("x-parameters") ?? ""));
    const source = { body: await response.arrayBuffer(), type: response.headers.get("content-type"), parameters };
    return { record, picture, source };
  }

  follow(record) {
    this.id = record.id;
    this.state = record.state;
    if (!this.busy) return this.hear("end", record);
    this.hear("state", record);
    this.listen(record.id);
  }

  async listen(id) {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    for (let tries = 0; tries < 5 && this.id === id; tries++) {
      let first = true; // a stream begins with the whole history, also one that takes up where another broke off
      try {
        for await (const [kind, data] of events(id, abort.signal)) {
          if (this.id !== id || abort.signal.aborted) return;
          tries = 0;
          if (data.state) this.state = data.state;
          this.hear(kind, kind === "incumbent" ? { ...data, first } : data);
          if (kind === "incumbent") first = false;
          if (kind === "end") return;
        }
      } catch (error) {
        if (error.name === "AbortError") return;
        if (tries >= 4 || [404, 422].includes(error.status)) return this.hear("lost", { error: error.message });
      }
      await new Promise((go) => setTimeout(go, 600 * (tries + 1)));
    }
  }

  async pause() {
    await post(`/jobs/${this.id}/pause`);
  }

  async resume() {
    const { turn } = this;
    this.followIfWanted(await post(`/jobs/${this.id}/resume`), turn);
  }

  async stop() {
    const record = await remove(`/jobs/${this.id}`);
    if (this.id === record.id && !this.busy) {
      this.state = record.state;
      this.hear("end", record);
    }
  }

  /** Go on to something else; a search that is still running is stopped. */
  forget() {
    const { id, busy } = this;
    this.abort?.abort();
    this.turn++;
    this.id = this.state = null;
    if (id && busy) remove(`/jobs/${id}`).catch(() => {});
  }
}
