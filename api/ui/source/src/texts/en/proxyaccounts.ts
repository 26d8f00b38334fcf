export const proxyaccounts = {
  "create": "Account of this proxy",
  "fleet": "Account of several proxies",
  "back": "All accounts of this proxy",
  "explain": "Explain a request of it",
  "limits": "0 is no limit. The quota counts both directions together.",
  "open": "Clients need no credentials here, so no account is asked for. Authentication is turned on in the configuration, and by the first account of this proxy.",
  "own": "Beside these, the user {name} of the proxy itself may use it, without limits.",
  "backend": "About users who are no accounts, your own service decides.",
  "empty.title": "No account may use this proxy",
  "empty.text": "An account is a person or a program with a password, limits and a quota: of this proxy alone, or of several.",
  "delete.text": "Clients that send its credentials are refused from then on, and its open connections end.",
};
