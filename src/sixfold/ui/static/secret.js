"use strict";
// Copies a key or a link that is shown once.
for (const secret of document.querySelectorAll(".secret")) {
  if (!navigator.clipboard?.writeText) break;
  const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(secret.textContent);
    button.textContent = "Copied";
  });
  secret.after(button);
}
