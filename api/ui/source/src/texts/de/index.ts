import { policies } from "./policies";
import { pools } from "./pools";
import { lists } from "./lists";
import { resolver } from "./resolver";
import { objects } from "./objects";
import { settings } from "./settings";
import { apikeys, sessions, users } from "./users";
import { webhooks } from "./webhooks";
import type { Texts } from "../index";
import { audit } from "./audit";
import { history } from "./history";
import { transfer } from "./transfer";
import { overview } from "./overview";
import { proxies } from "./proxies";
import { proxyaccounts } from "./proxyaccounts";
import { proxyform } from "./proxyform";
import { proxyrules } from "./proxyrules";
import { tlsname } from "./tlsname";
import { accounts } from "./accounts";
import { connections } from "./connections";
import { logs } from "./logs";
import { accountimport } from "./accountimport";
import { usage } from "./usage";
import { me } from "./me";
import { plans } from "./plans";
import { common, errors, shell } from "./shell";

/** German. The type holds it to the keys of English. */
export const de: Texts = { common, errors, shell, overview, proxies, proxyform, proxyrules, proxyaccounts, connections, logs, accounts, plans, audit, history, transfer, webhooks, users, apikeys, sessions, settings, me, usage, accountimport, objects, lists, policies, pools, resolver, tlsname };
