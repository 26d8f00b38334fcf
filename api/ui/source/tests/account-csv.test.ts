import { expect, test } from "vitest";
import { accountsOf } from "../src/screens/accounts/import/account_csv";
import { wrongLines } from "../src/screens/accounts/import/importing";
import { wrongObjects } from "../src/screens/transfer/wrong";
import { ApiError } from "../src/api/errors";

test("cells are read as the command line reads them", () => {
  const text = '\ufeffusername,tags,quota.bytes,metadata.a.b,enabled\r\n"al""i,\nce",a; b,null,\'=1,no\r\n\r\nbob,,5,,\n';
  const { lines, wrong } = accountsOf(text);
  expect(wrong).toEqual([]);
  expect(lines.map((each) => each.number)).toEqual([2, 5]);
  expect(JSON.parse(JSON.stringify(lines.map((each) => each.body)))).toEqual([
    { username: 'al"i,\nce', tags: ["a", "b"], quota: { bytes: null }, metadata: { "a.b": "=1" }, enabled: false },
    { username: "bob", quota: { bytes: 5 } },
  ]);
});

test("all wrong lines are named", () => {
  expect(accountsOf("name\nx").wrong[0]).toMatchObject({ number: 1, field: "name" });
  expect(accountsOf("").wrong).toHaveLength(1);
  const { wrong } = accountsOf('username,quota.bytes,enabled\na,x,maybe\nb\nc,1,\n"d,2');
  expect(wrong.map((each) => [each.number, each.field])).toEqual([[2, "quota.bytes"], [2, "enabled"], [3, ""], [5, ""]]);
});

test("errors of the service name lines of the file", () => {
  const { lines } = accountsOf("id,username,password\n,a,x\nacc_1,b,\n,c,y");
  const details = { errors: [{ field: "lines[3].username", error: "e" }, { field: "create[1].plan", error: "e" }, { field: "update[0]", error: "e" }] };
  const error = new ApiError({ status: 400, code: "", message: "", requestId: null, details });
  expect(wrongLines(error, lines).map((each) => [each.number, each.field])).toEqual([[4, "username"], [4, "plan"], [3, ""]]);
});

test("errors of a document name its objects", () => {
  const document = { proxies: [{ name: "office" }, {}], users: [{ username: "eva" }] };
  const fields = { "proxies[0].port": "a", "proxies[1]": "b", "users[0].role": "c", "settings.logging.level": "d", "proxies[7].port": "e" };
  expect(wrongObjects(fields, document).map(({ object, field }) => [object, field])).toEqual([
    ["Proxy office", "port"], ["Proxy proxies[1]", ""], ["User eva", "role"], ["", "settings.logging.level"], ["Proxy proxies[7]", "port"],
  ]);
});
