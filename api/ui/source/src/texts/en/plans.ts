export const plans = {
  "create": "Create plan",
  "policy.hint": "Applies on all proxies, before the policy of the proxy",
  "disclose": "Name the rule in refusals",
  "disclose.hint": "Otherwise clients only get the reason, without policy, rule or list",
  "self.password": "Account holders can change their password",
  "self.hint": "At /ui/me, if self-service is on",
  "self.credentials": "Account holders can create credentials",
  "empty.title": "No plan yet",
  "empty.text": "A plan is what many accounts have in common: limits, quota, targets, schedule. A change applies to all of them at once.",
  "delete": "Delete plan",
  "delete.text": "A plan that accounts use can't be deleted.",
  "gone": "This plan does not exist",
};
