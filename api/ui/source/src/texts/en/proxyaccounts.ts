export const proxyaccounts = {
  "create": "Account for this proxy",
  "fleet": "Account for several",
  "back": "All accounts of this proxy",
  "limits": "0 means no limit. The quota counts both directions together.",
  "open": "Clients need no credentials here, so no account is checked. Require credentials in the configuration, or create an account for this proxy.",
  "own": "The user {name} of the proxy itself can also use it, without limits.",
  "backend": "Your own service decides about users without an account.",
  "empty.title": "No account can use this proxy yet",
  "empty.text": "An account is a person or a program with a password, limits and a quota, for this proxy alone or for several.",
  "delete.text": "Clients with its credentials are refused from then on, and its open connections end.",
};
