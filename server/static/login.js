// The login: name and password go to the broker as JSON; the cookie that comes back is out of reach.

const form = document.getElementById("login");
const state = document.getElementById("state");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const user = document.getElementById("user");
  const password = document.getElementById("password");
  const button = form.querySelector("button");
  button.disabled = true;
  state.textContent = "";
  try {
    const response = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ user: user.value, password: password.value }),
    });
    if (response.ok) {
      window.location.assign("/");
      return;
    }
    state.textContent = (await response.json()).error;
    password.value = "";
    password.focus();
  } catch {
    state.textContent = "the broker does not answer";
  } finally {
    button.disabled = false;
  }
});
