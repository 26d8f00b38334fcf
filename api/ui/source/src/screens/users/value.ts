/** A user as its form has it, and what the API accepts. */
import type { Schemas } from "../../api/client";
import { t } from "../../texts";

export type User = Schemas["UserView"];
export const ROLES = ["administrator", "operator", "user", "auditor"] as const;
export type Role = (typeof ROLES)[number];
export const PERMISSIONS = ["proxy.read", "proxy.write", "proxy.delete", "metrics.read", "users.read", "users.write", "users.delete", "settings.read", "settings.write", "admin", "*"] as const;
export type Permission = (typeof PERMISSIONS)[number];

/** In words, with one for all of them. */
export const permissionsOf = (permissions: readonly string[]): string => (permissions.includes("*") ? t("users.permissions.all") : permissions.join(", "));

export interface UserValue {
  email: string;
  role: Role;
  status: "active" | "disabled";
  /** Whether the permissions are others than those of the role. */
  own: boolean;
  permissions: string[];
  password: string;
}

export function valueOf(user: User): UserValue {
  return { email: user.email ?? "", role: user.role as Role, status: user.status, own: false, permissions: [...user.permissions], password: "" };
}

/** The body of a PATCH: what is different, and the password only where it was typed. */
export function bodyOf(before: UserValue, after: UserValue): Schemas["UserUpdate"] {
  const same = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);
  return {
    ...(before.email !== after.email && { email: after.email }),
    ...(before.role !== after.role && { role: after.role }),
    ...(before.status !== after.status && { status: after.status }),
    ...(after.own && !same(before.permissions, after.permissions) && { permissions: after.permissions as Permission[] }),
    ...(after.password && { password: after.password }),
  };
}
