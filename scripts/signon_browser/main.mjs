// All checks of scripts/signon, which starts the service and the provider and says by the environment where they are.
import { checkBrowser } from "./browser.mjs";
import { checks } from "./check.mjs";
import { checkHttp } from "./http.mjs";

const { SIGNON_URL: base, SIGNON_ISSUER: issuer, SIGNON_USER_ID: id, SIGNON_USER_EMAIL: email, SIGNON_LINK: link } = process.env;
const { SIGNON_CHROMIUM: executablePath, SIGNON_SCREENSHOTS: screenshots } = process.env;

try {
  await checkHttp({ base, issuer, linked: { id, email } });
  await checkBrowser({ base, issuer, link: { url: link, email }, executablePath, screenshots });
  console.log(`single sign-on and pages: ${checks()} checks passed`);
} catch (error) {
  console.error(error.message);
  console.error(error.cause?.message ?? error.stack);
  console.error(`failed after ${checks()} checks`);
  process.exitCode = 1;
}
