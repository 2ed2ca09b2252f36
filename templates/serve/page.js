// The pages are complete without this script. It logs in with the token of the printed link, and keeps a live page
// up to date: it asks once a second for the part that changes, every ten seconds while nothing does, and not at all
// while the page is hidden. Only what differs is changed, so that focus, selection and clicks are kept.
"use strict";
const form = document.getElementById("login");
function logIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  if (form) {
    form.elements.token.value = token;
    form.requestSubmit();
  }
}
logIn();
// A link that is pasted into the open log-in page changes only what is after `#`.
addEventListener("hashchange", logIn);

const live = document.getElementById("live");
const callbacks = {
  // What is typed into a form, and what the reader has opened, is theirs.
  beforeNodeMorphed: (node) => node.nodeName !== "FORM",
  beforeAttributeUpdated: (name, node) => !(name === "open" && node.nodeName === "DETAILS"),
};
let unchanged = 0;
async function update() {
  if (document.hidden) return;
  const { revision } = live.dataset;
  const address = new URL(location.href);
  address.hash = "";
  address.searchParams.set("live", revision);
  const response = await fetch(address, { redirect: "error" });
  if (response.status === 401) {
    location.reload();
    return;
  }
  if (!response.ok) throw new Error(response.status);
  document.body.classList.remove("offline");
  if (response.status === 204) {
    unchanged += 1;
    return;
  }
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const next = page.getElementById("live");
  if (!next) throw new Error("not a live page");
  unchanged = next.dataset.revision === revision ? unchanged + 1 : 0;
  Idiomorph.morph(live, next, { callbacks });
}
async function poll() {
  try {
    await update();
  } catch {
    unchanged = 5;
    document.body.classList.add("offline");
  }
  setTimeout(poll, unchanged < 5 ? 1000 : Math.min(10000, 1000 * (unchanged - 3)));
}
if (live) {
  setTimeout(poll, 1000);
  document.addEventListener("visibilitychange", () => { unchanged = 0; });
}
