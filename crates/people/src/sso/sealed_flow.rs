//! A sign-on under way, sealed in a cookie of the browser that began it.
//!
//! The server keeps nothing, so strangers who begin any number of sign-ons displace none. The cookie opens only with the
//! `state` that the provider repeats: a callback without the cookie, or with that of another sign-on, is not known.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use kernel::auth::{cookie_sizes, cookies};
use kernel::base::{Error, Result, TenantId, Timestamp, TokenSeal, hmac_sha256, sha256};
use kernel::http::{BaseUrl, Shared};

use super::store::Found;
use super::{FLOW_MS, ProviderId};
use crate::cookie;

const SEAL: TokenSeal = TokenSeal::new("sso flow");

/// What is sealed: tenant, provider, its version, when it expires, the secret, and where it leads to.
type Sealed = (String, String, i64, i64, String, String);

/// A sign-on that somebody has begun. It does not print.
pub struct Flow {
    pub tenant: TenantId,
    pub provider: ProviderId,
    /// That of the provider when the sign-on began.
    pub version: i64,
    pub expires_at: Timestamp,
    /// 256 random bits, which the verifier and the nonce are derived from.
    secret: String,
    pub redirect_to: String,
}

impl Flow {
    pub fn begin(app: &Shared, provider: &Found, redirect_to: String) -> Self {
        Flow {
            tenant: provider.tenant,
            provider: provider.id,
            version: provider.version,
            expires_at: app.world.now().plus(FLOW_MS),
            secret: BASE64.encode(app.world.chance.bytes::<32>()),
            redirect_to,
        }
    }

    /// For PKCE (RFC 7636): 43 characters, as it asks for.
    pub fn verifier(&self) -> String {
        BASE64.encode(hmac_sha256(self.secret.as_bytes(), b"sso code verifier"))
    }

    pub fn nonce(&self) -> String {
        BASE64.encode(hmac_sha256(self.secret.as_bytes(), b"sso nonce"))
    }

    /// The cookies that an answer sets: the sign-on's own, and those of sign-ons that were left, where there are too many. Not
    /// `Strict`, because the browser comes back from another site.
    pub fn set_cookies(&self, app: &Shared, state: &str, headers: &HeaderMap) -> Result<Vec<String>> {
        let base_url = &app.settings.base_url;
        let pair = format!("{}={}", cookie_name(base_url, state), self.seal(app, state)?);
        let left = forget_left_cookies(base_url, headers, pair.len());
        let (seconds, secure) = (FLOW_MS / 1_000, if base_url.is_https() { "; Secure" } else { "" });
        let own = format!("{pair}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
        Ok([own].into_iter().chain(left).collect())
    }

    fn seal(&self, app: &Shared, state: &str) -> Result<String> {
        let sealed: Sealed = (
            self.tenant.to_string(),
            self.provider.to_string(),
            self.version,
            self.expires_at.as_millis(),
            self.secret.clone(),
            self.redirect_to.clone(),
        );
        let value = serde_json::to_vec(&sealed).map_err(Error::internal)?;
        SEAL.seal(&app.secrets, &app.world.chance, state, &value)
    }

    /// The sign-on of this state that the browser has a cookie of. None if it has none that was sealed here for it.
    pub fn find(app: &Shared, state: &str, headers: &HeaderMap) -> Option<Self> {
        let named = cookies(headers, &cookie_name(&app.settings.base_url, state));
        let value = named.iter().find_map(|text| SEAL.open(&app.secrets, state, text))?;
        let (tenant, provider, version, expires_at, secret, redirect_to): Sealed =
            serde_json::from_slice(&value).ok()?;
        let (tenant, provider) = (tenant.parse().ok()?, provider.parse().ok()?);
        Some(Flow { tenant, provider, version, expires_at: Timestamp::from_millis(expires_at), secret, redirect_to })
    }
}

/// One for each sign-on: people have several windows, and begin in each of them.
pub fn cookie_name(base_url: &BaseUrl, state: &str) -> String {
    format!("{}{}", cookie_prefix(base_url), BASE64.encode(&sha256(state.as_bytes())[..6]))
}

fn cookie_prefix(base_url: &BaseUrl) -> &'static str {
    if base_url.is_https() { "__Host-sso_flow_" } else { "sso_flow_" }
}

/// Sign-ons of one browser: more than anybody has windows for. All its cookies go with every request, and proxies take no more
/// than 8 KiB of them.
const COOKIES_MAX: usize = 16;
const COOKIES_BYTES_MAX: usize = 6 * 1024;

/// Makes a browser forget the oldest of what it has begun, beyond so many and so much. `begun_bytes` is what the cookie of the
/// sign-on that begins now takes; that one always stays.
fn forget_left_cookies(base_url: &BaseUrl, headers: &HeaderMap, begun_bytes: usize) -> Vec<String> {
    // The oldest come first.
    let known = cookie_sizes(headers, cookie_prefix(base_url));
    let (mut count, mut bytes) = (1, begun_bytes);
    let kept = known.iter().rev().take_while(|(_, size)| {
        (count, bytes) = (count + 1, bytes + size);
        count <= COOKIES_MAX && bytes <= COOKIES_BYTES_MAX
    });
    let left = known.len() - kept.count();
    known[..left].iter().map(|(name, _)| cookie::clearing(name, base_url.is_https())).collect()
}
