// The pages are complete without this script. It logs in with the token of the printed link, and keeps a live page
// up to date: it asks once a second for the part that changes, every ten seconds while nothing does, and not at all
// while the page is hidden.
"use strict";
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("login");
  if (form) {
    form.elements.token.value = token;
    form.requestSubmit();
  }
}
const path = document.body.dataset.livePath;
let unchanged = 0;
async function update() {
  if (document.hidden) return;
  const revision = document.body.dataset.rev;
  const response = await fetch(`${path}?live=${encodeURIComponent(revision)}`, { redirect: "error" });
  if (response.status === 204) {
    unchanged += 1;
    return;
  }
  if (response.status === 401) {
    location.reload();
    return;
  }
  if (!response.ok) throw new Error(response.status);
  const next = new DOMParser().parseFromString(await response.text(), "text/html");
  const live = next.getElementById("live");
  if (live) document.getElementById("live").replaceWith(live);
  unchanged = next.body.dataset.rev === revision ? unchanged + 1 : 0;
  document.body.dataset.rev = next.body.dataset.rev;
  document.body.classList.remove("offline");
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
if (path) {
  setTimeout(poll, 1000);
  document.addEventListener("visibilitychange", () => { unchanged = 0; });
}
