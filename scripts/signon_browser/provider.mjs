// An identity provider for scripts/signon: oidc-provider, which is certified, with an account for every login.
//
//   node provider.mjs CLIENT_SECRET_FILE REDIRECT_URI POST_LOGOUT_REDIRECT_URI
//
// Prints its issuer when it listens, and runs until it is ended. Its forms are its own and take any password. What an
// account is like, its login says: one that begins with `admin` is of the group `admins`, and the address of one that
// begins with `unverified` was never verified.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

// Not the service's address: to a browser this is another site, as a customer's provider is.
const ADDRESS = "127.0.0.2";

const [secretFile, redirectUri, signedOutUri] = process.argv.slice(2);

function claimsOf(login) {
  return {
    sub: login,
    email: login,
    email_verified: !login.startsWith("unverified"),
    name: `Name of ${login.split("@")[0]}`,
    groups: login.startsWith("admin") ? ["staff", "admins"] : ["staff"],
  };
}

function configuration() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return {
    clients: [
      {
        client_id: "tenant-control",
        client_secret: readFileSync(secretFile, "utf8").trim(),
        redirect_uris: [redirectUri],
        post_logout_redirect_uris: [signedOutUri],
        response_types: ["code"],
        grant_types: ["authorization_code"],
        token_endpoint_auth_method: "client_secret_basic",
      },
    ],
    clientAuthMethods: ["client_secret_basic"],
    pkce: { required: () => true },
    scopes: ["openid", "email", "profile"],
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"] },
    // The ID token has no claims of scopes: a client has to ask userinfo for them.
    conformIdTokenClaims: true,
    findAccount: (_context, login) => ({ accountId: login, claims: () => claimsOf(login) }),
    jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), alg: "RS256", use: "sig", kid: randomUUID() }] },
    cookies: { keys: [randomUUID()] },
    features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  };
}

// The port is part of the issuer, so it is known before the provider is made.
const server = createServer();
server.listen(0, ADDRESS, () => {
  const issuer = `http://${ADDRESS}:${server.address().port}`;
  const provider = new Provider(issuer, configuration());
  for (const event of ["authorization.error", "grant.error", "userinfo.error", "end_session.error", "server_error"]) {
    provider.on(event, (_context, error) => console.error(event, error.message, error.error_description ?? ""));
  }
  server.on("request", provider.callback());
  console.log(issuer);
});
