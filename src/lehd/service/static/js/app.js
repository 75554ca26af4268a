// What all parts of the page share: the state, and small helpers.

export const $ = (id) => document.getElementById(id);

export const app = {
  problem: null,
  settings: { nodes: 10000, seconds: 300, default_seconds: 10, body_mb: 16, tiles: null, tiles_credit: "" },
  history: [], // improvements: seconds, iteration, cost
  limit: 10, // seconds of the search
  clock: null, // when the running search began, on this page's clock
  spent: 0, // seconds of it
  reference: null, // {cost} to compare with
  waitingReference: null, // a file that came before there was a job to check it with
  routeCosts: null, // of the routes in the order they are shown, once the search has ended
  view: null,
  search: null,
  list: null,
  hand: null,
};

/** Forget what was found. */
export function startAfresh() {
  Object.assign(app, { history: [], clock: null, spent: 0, reference: null, routeCosts: null });
  $("known").value = "";
  location.hash = "";
}

/** To screen readers. */
export function say(words) {
  $("live").textContent = words;
}

export function complain(error) {
  if (error?.name === "AbortError") return;
  $("alert-text").textContent = error instanceof Error ? error.message : String(error);
  $("alert").hidden = false;
}

/** An action whose mistakes are shown. */
export const shown = (action) => async (...given) => {
  $("alert").hidden = true;
  try {
    await action(...given);
  } catch (error) {
    if (error.status === undefined) console.error(error); // not the service's words, but a mistake of ours
    complain(error);
  }
};

export const numberIn = (id) => ($(id).value.trim() === "" ? null : Number($(id).value));
export const demandOfNew = () => numberIn("demand") ?? 1 + Math.floor(9 * Math.random());
export const capacity = () => (app.problem.source ? app.problem.capacity : (numberIn("capacity") ?? 50));
