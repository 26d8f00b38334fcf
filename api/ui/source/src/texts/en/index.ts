import { policies } from "./policies";
import { pools } from "./pools";
import { lists } from "./lists";
import { resolver } from "./resolver";
import { objects } from "./objects";
import { settings } from "./settings";
import { audit } from "./audit";
import { history } from "./history";
import { transfer } from "./transfer";
import { apikeys, sessions, users } from "./users";
import { webhooks } from "./webhooks";
import { accounts } from "./accounts";
import { connections } from "./connections";
import { logs } from "./logs";
import { accountimport } from "./accountimport";
import { usage } from "./usage";
import { me } from "./me";
import { plans } from "./plans";
import { common, errors, shell } from "./shell";
import { overview } from "./overview";
import { proxies } from "./proxies";
import { proxyaccounts } from "./proxyaccounts";
import { proxyform } from "./proxyform";
import { proxyrules } from "./proxyrules";
import { tlsname } from "./tlsname";

/** English: every key there is. An area adds a line here and in `de/index.ts`. */
export const en = { common, errors, shell, overview, proxies, proxyform, proxyrules, proxyaccounts, connections, logs, accounts, plans, audit, history, transfer, webhooks, users, apikeys, sessions, settings, me, usage, accountimport, objects, lists, policies, pools, resolver, tlsname };
export type En = { [A in keyof typeof en]: { [K in keyof (typeof en)[A]]: string } };
