//! The state of a sign-on, sealed in a cookie of the browser that began it.
//!
//! The server stores nothing, so strangers who begin any number of sign-ons displace none. The cookie opens only with the
//! `state` that the provider repeats: a callback without the cookie, or with that of another sign-on, is unknown.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use kernel::auth::{cookie_sizes, read_cookies};
use kernel::base::{Error, Result, TenantId, Timestamp, TokenSeal, hmac_sha256, sha256};
use kernel::http::{BaseUrl, SharedApp};

use super::store::ProviderConfig;
use super::{FLOW_MS, ProviderId};
use crate::cookie;

const SEAL: TokenSeal = TokenSeal::new("sso flow");

/// Tenant, provider, its version, the expiry, the secret, and the redirect target.
type SealedFlowFields = (String, String, i64, i64, String, String);

/// A sign-on under way. Not `Debug`, because it has a secret.
pub struct SignOnFlow {
    pub tenant: TenantId,
    pub provider: ProviderId,
    /// The provider's version when the sign-on began.
    pub version: i64,
    pub expires_at: Timestamp,
    /// 256 random bits, from which the verifier and the nonce are derived.
    secret: String,
    pub redirect_to: String,
}

impl SignOnFlow {
    pub fn for_provider(app: &SharedApp, provider: &ProviderConfig, redirect_to: String) -> Self {
        SignOnFlow {
            tenant: provider.tenant,
            provider: provider.id,
            version: provider.version,
            expires_at: app.env.now().plus_ms(FLOW_MS),
            secret: BASE64.encode(app.env.random.secret_bytes::<32>()),
            redirect_to,
        }
    }

    /// The PKCE code verifier (RFC 7636): 43 characters, the required minimum.
    pub fn code_verifier(&self) -> String {
        BASE64.encode(hmac_sha256(self.secret.as_bytes(), b"sso code verifier"))
    }

    pub fn nonce(&self) -> String {
        BASE64.encode(hmac_sha256(self.secret.as_bytes(), b"sso nonce"))
    }

    /// The `Set-Cookie` values: the cookie of this sign-on, and the removal of the oldest ones if there are too many. Not
    /// `Strict`, because the browser comes back from another site.
    pub fn set_cookies(&self, app: &SharedApp, state: &str, headers: &HeaderMap) -> Result<Vec<String>> {
        let base_url = &app.settings.base_url;
        let pair = format!("{}={}", cookie_name(base_url, state), self.seal_with_state(app, state)?);
        let left = expire_oldest_cookies(base_url, headers, pair.len());
        let (seconds, secure) = (FLOW_MS / 1_000, if base_url.is_https() { "; Secure" } else { "" });
        let own = format!("{pair}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
        Ok([own].into_iter().chain(left).collect())
    }

    fn seal_with_state(&self, app: &SharedApp, state: &str) -> Result<String> {
        let sealed: SealedFlowFields = (
            self.tenant.to_string(),
            self.provider.to_string(),
            self.version,
            self.expires_at.as_millis(),
            self.secret.clone(),
            self.redirect_to.clone(),
        );
        let value = serde_json::to_vec(&sealed).map_err(Error::internal)?;
        SEAL.seal_token(&app.secrets, &app.env.random, state, &value)
    }

    /// The sign-on of this `state`, from the browser's cookies. `None` without a cookie that was sealed here for it.
    pub fn find_in_cookies(app: &SharedApp, state: &str, headers: &HeaderMap) -> Option<Self> {
        let named = read_cookies(headers, &cookie_name(&app.settings.base_url, state));
        let value = named.iter().find_map(|text| SEAL.open_token(&app.secrets, state, text))?;
        let (tenant, provider, version, expires_at, secret, redirect_to): SealedFlowFields =
            serde_json::from_slice(&value).ok()?;
        let (tenant, provider) = (tenant.parse().ok()?, provider.parse().ok()?);
        Some(SignOnFlow {
            tenant,
            provider,
            version,
            expires_at: Timestamp::from_millis(expires_at),
            secret,
            redirect_to,
        })
    }
}

/// One cookie per sign-on: a person may begin one in each of several windows.
pub fn cookie_name(base_url: &BaseUrl, state: &str) -> String {
    format!("{}{}", cookie_prefix(base_url), BASE64.encode(&sha256(state.as_bytes())[..6]))
}

fn cookie_prefix(base_url: &BaseUrl) -> &'static str {
    if base_url.is_https() { "__Host-sso_flow_" } else { "sso_flow_" }
}

/// Sign-ons of one browser: more than a person has windows for. Every request carries all cookies, and proxies accept no
/// more than 8 KiB of them.
const COOKIES_MAX: usize = 16;
const COOKIES_BYTES_MAX: usize = 6 * 1024;

/// Removes the oldest sign-on cookies beyond the limits of number and size. `begun_bytes` is the size of the new cookie,
/// which always stays.
fn expire_oldest_cookies(base_url: &BaseUrl, headers: &HeaderMap, begun_bytes: usize) -> Vec<String> {
    // The oldest come first.
    let cookies = cookie_sizes(headers, cookie_prefix(base_url));
    let (mut count, mut bytes) = (1, begun_bytes);
    let remaining = cookies.iter().rev().take_while(|(_, size)| {
        (count, bytes) = (count + 1, bytes + size);
        count <= COOKIES_MAX && bytes <= COOKIES_BYTES_MAX
    });
    let expired = cookies.len() - remaining.count();
    cookies[..expired].iter().map(|(name, _)| cookie::clear_cookie_header(name, base_url.is_https())).collect()
}
