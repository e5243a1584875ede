"use strict";
// Passkeys: WebAuthn registration and sign-in. Bytes are sent as base64url.
const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
  .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

async function post(path, body, csrf) {
  const headers = { "Content-Type": "application/json" };
  if (csrf) headers["X-CSRF-Token"] = csrf;
  const { ok, data } = await connection.request(path, { method: "POST", headers, body: JSON.stringify(body) });
  if (data.code === "sign_in_again") {
    location.assign(`/signin?again=1&next=${encodeURIComponent(location.pathname)}`);
  }
  if (!ok) throw Object.assign(new Error(data.error), { data });
  return data;
}

function decodeOptions(options) {
  const decodeIds = (list) => (list ?? []).map((one) => ({ ...one, id: bytes(one.id) }));
  const publicKey = { ...options, challenge: bytes(options.challenge) };
  if (options.user) publicKey.user = { ...options.user, id: bytes(options.user.id) };
  if (options.excludeCredentials) publicKey.excludeCredentials = decodeIds(options.excludeCredentials);
  if (options.allowCredentials) publicKey.allowCredentials = decodeIds(options.allowCredentials);
  return { publicKey };
}

function encodeCredential(credential) {
  const response = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (credential.response[name]) response[name] = text(credential.response[name]);
  }
  return { id: credential.id, rawId: text(credential.rawId), type: credential.type, response };
}

// Declining on the device is not an error; all other errors are shown.
const message = (error) => (error.name === "NotAllowedError" ? "Canceled." :
  error.name === "InvalidStateError" ? "This device already has a passkey for this account." : error.message);

async function attempt(note, button, work) {
  button.disabled = true;
  note.textContent = "Confirm on your device …";
  try {
    await work();
  } catch (error) {
    const retry = error.data?.retry && { title: "Try again", act: () => button.click() };
    connection.show(note, { ...error.data, error: message(error) }, retry);
  } finally {
    button.disabled = false;
  }
}

const isOtherOrigin = (element) => element.dataset.origin !== location.origin;

const registerForm = document.getElementById("add-passkey");
registerForm?.addEventListener("submit", (event) => {
  event.preventDefault();
  const note = registerForm.querySelector("[role=status]");
  if (isOtherOrigin(registerForm)) {
    note.replaceChildren("Passkeys are used at ", Object.assign(document.createElement("a"),
      { href: registerForm.dataset.origin + location.pathname, textContent: registerForm.dataset.origin }), ": open this page there.");
    return;
  }
  const { csrf } = registerForm.dataset;
  attempt(note, registerForm.querySelector("button"), async () => {
    const options = await post("/account/passkeys/ask", {}, csrf);
    const credential = await navigator.credentials.create(decodeOptions(options));
    await post("/account/passkeys", { name: registerForm.elements.name.value || "This device", credential: encodeCredential(credential) }, csrf);
    location.hash = "passkeys";
    location.reload();
  });
});

const signInBox = document.getElementById("use-passkey");
if (signInBox && window.PublicKeyCredential && !isOtherOrigin(signInBox)) {
  signInBox.hidden = false;
  const button = signInBox.querySelector("button");
  button.addEventListener("click", () => attempt(signInBox.querySelector("[role=status]"), button, async () => {
    const options = await post("/signin/passkey/ask", {});
    const credential = await navigator.credentials.get(decodeOptions(options));
    const result = await post("/signin/passkey", { next: signInBox.dataset.next, credential: encodeCredential(credential) });
    location.assign(result.next);
  }));
}
