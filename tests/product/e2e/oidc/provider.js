// A certified OpenID provider on loopback for the tests: one client for each line of its table, whoever signs in is who
// they say they are. Its first argument is the folder where npm's oidc-provider is installed. It prints its address and
// ends with its standard input.
import { createServer } from 'node:http';
import { generateKeyPairSync } from 'node:crypto';
import { pathToFileURL } from 'node:url';

const { default: Provider } = await import(pathToFileURL(`${process.argv[2]}/node_modules/oidc-provider/lib/index.js`));

const SECRET = 'a secret with +, %, & and :, which has to be form-encoded';
const client = (id, more) => ({
  client_id: id,
  client_secret: SECRET,
  redirect_uris: ['https://fleet.example/signed-in'],
  ...more,
});
const key = (...kind) => generateKeyPairSync(...kind).privateKey.export({ format: 'jwk' });

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      client('basic', {}),
      client('post', { token_endpoint_auth_method: 'client_secret_post' }),
      client('public', { client_secret: undefined, token_endpoint_auth_method: 'none' }),
      client('ps256', { id_token_signed_response_alg: 'PS256' }),
      client('es256', { id_token_signed_response_alg: 'ES256' }),
      client('hs256', { id_token_signed_response_alg: 'HS256' }),
    ],
    jwks: {
      keys: [
        { ...key('rsa', { modulusLength: 2048 }), kid: 'rsa', use: 'sig' },
        { ...key('ec', { namedCurve: 'P-256' }), kid: 'ec', use: 'sig' },
      ],
    },
    enabledJWA: { idTokenSigningAlgValues: ['RS256', 'PS256', 'ES256', 'HS256'] },
    cookies: { keys: ['of the tests'] },
    pkce: { required: () => true },
    claims: { email: ['email', 'email_verified'], profile: ['name', 'groups'] },
    findAccount: (_context, id) => ({
      accountId: id,
      claims: () => ({
        sub: id,
        name: id,
        email: `${id}@example.com`,
        email_verified: !id.startsWith('unverified'),
        groups: id.startsWith('operator') ? ['staff', 'fleet'] : ['staff'],
      }),
    }),
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
process.stdin.resume().on('end', () => process.exit(0));
