"use strict";
// Copies a key or a link that is shown once.
for (const secret of document.querySelectorAll(".secret")) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    const isCopied = await connection.copy(secret.textContent).then(() => true, () => false);
    button.textContent = isCopied ? "Copied" : "Not copied";
  });
  secret.after(button);
}
