/** Certificates that the service makes, or stores, for proxies. */
import { api, data, type Schemas } from "../../../api/client";

export type Certificate = Schemas["CertificateView"];

const BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----[^-]+-----END \1-----/g;

/** Certificates and the key of PEM files, in whichever of them; empty for what is in none. */
export function pairOf(texts: readonly string[]): { certificate: string; private_key: string } {
  const blocks = texts.flatMap((text) => [...text.matchAll(BLOCK)]);
  const those = (is: (kind: string) => boolean) => blocks.filter(([, kind]) => is(kind!)).map(([block]) => block).join("\n");
  return { certificate: those((kind) => kind.endsWith("CERTIFICATE")), private_key: those((kind) => kind.endsWith("PRIVATE KEY")) };
}

const OF_ALL = /^[0:.]+$|\{/;

/** The names that a client may have for a proxy: the host of this page, its own address, this machine. */
export const namesFor = (host: string, page: string): string[] => [...new Set([page, ...(OF_ALL.test(host) || !host ? [] : [host]), "localhost"])];

/** Throws `ApiError`. */
export const store = async (body: { names: string[] } | { certificate: string; private_key: string }): Promise<Certificate> => (await data(api.POST("/api/v1/certificates", { body }))).certificate;
