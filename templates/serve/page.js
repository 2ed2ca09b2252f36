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
  const response = await fetch(address, { redirect: "manual" });
  if (response.status === 401 || response.type === "opaqueredirect") {
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
  if (!next || page.title !== document.title) {
    // What was awaited is done: the page is another one.
    location.reload();
    return;
  }
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

// After a form was refused, its first field with an error has the focus.
document.querySelector("[aria-invalid=true]")?.focus();

// The text of a new campaign: columns are inserted where the cursor is, and the first messages follow what is typed.
const text = document.querySelector("#step-text textarea");
const trial = document.getElementById("trial");
let trying = 0;
async function tryText() {
  const turn = ++trying;
  const given = new URLSearchParams(new FormData(text.form));
  given.set("then", "try");
  const response = await fetch(text.form.action, { method: "POST", body: given, redirect: "error" });
  const part = await response.text();
  if (!response.ok || turn !== trying) return;
  const parsed = new DOMParser().parseFromString(part, "text/html");
  trial.replaceChildren(...parsed.body.childNodes);
}
if (text) {
  let timer;
  text.form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => tryText().catch(() => {}), 300);
  });
  for (const button of text.form.querySelectorAll("[data-insert]")) {
    button.addEventListener("click", () => {
      text.setRangeText(button.dataset.insert, text.selectionStart, text.selectionEnd, "end");
      text.focus();
      text.dispatchEvent(new Event("input", { bubbles: true }));
    });
  }
}

// The upload of a large list shows how far it is.
const upload = document.getElementById("upload");
if (upload) {
  upload.addEventListener("submit", (event) => {
    if (!upload.elements.file.files.length) return;
    event.preventDefault();
    const shown = document.getElementById("uploading");
    const bar = shown.querySelector("progress");
    const request = new XMLHttpRequest();
    request.open("POST", upload.action);
    request.setRequestHeader("Accept", "text/html");
    request.upload.addEventListener("progress", (sent) => {
      if (!sent.lengthComputable) return;
      bar.value = (sent.loaded / sent.total) * 100;
      shown.querySelector("span").textContent = `${Math.floor(bar.value)} %`;
    });
    request.addEventListener("load", () => {
      if (request.status === 200) {
        location.assign(request.responseURL);
        return;
      }
      const page = new DOMParser().parseFromString(request.responseText, "text/html");
      document.getElementById("main").replaceWith(page.getElementById("main"));
    });
    request.addEventListener("error", () => upload.submit());
    shown.hidden = false;
    request.send(new FormData(upload));
  });
}
