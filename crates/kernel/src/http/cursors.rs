//! Keyset cursors, signed so that they cannot be forged or used for another list, tenant or filter.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use super::app::App;
use crate::base::{Code, Error, Result, TenantId, constant_time_eq};
use crate::store::{CursorKey, Value};

/// A truncated HMAC of 128 bits, which cannot be guessed.
const MAC_LEN: usize = 16;

/// Signs and opens the cursors of one list of one tenant with its filters.
pub struct CursorSigner<'a> {
    pub app: &'a App,
    pub tenant: TenantId,
    pub path: &'a str,
    /// Names and values in their canonical spelling.
    pub filters: &'a [(&'static str, String)],
}

impl CursorSigner<'_> {
    /// A cursor for the page after this position.
    pub fn sign_position(&self, position: &[Value]) -> Result<String> {
        let position = serde_json::to_vec(position).map_err(Error::internal)?;
        let mut bytes = self.compute_mac(&position);
        bytes.extend_from_slice(&position);
        Ok(BASE64.encode(bytes))
    }

    /// The position in a cursor, if it was signed for this list, tenant and filters.
    pub fn open_cursor(&self, cursor: &str) -> Result<Vec<Value>> {
        let bytes = BASE64.decode(cursor).map_err(|_| invalid_cursor())?;
        let (mac, position) = bytes.split_at_checked(MAC_LEN).ok_or_else(invalid_cursor)?;
        if !constant_time_eq(mac, &self.compute_mac(position)) {
            return Err(invalid_cursor());
        }
        serde_json::from_slice(position).map_err(|_| invalid_cursor())
    }

    /// The position in a cursor as the list's own key type.
    pub fn open_as<K: CursorKey>(&self, cursor: &str) -> Result<K> {
        K::from_position(&self.open_cursor(cursor)?).ok_or_else(invalid_cursor)
    }

    fn compute_mac(&self, position: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        let tenant = self.tenant.to_string();
        let filters = self.filters.iter().flat_map(|(name, value)| [*name, value.as_str()]);
        for part in [self.path, &tenant].into_iter().chain(filters) {
            text.extend_from_slice(&(part.len() as u64).to_be_bytes());
            text.extend_from_slice(part.as_bytes());
        }
        text.extend_from_slice(position);
        self.app.secrets.cursor_key().sign(&text)[..MAC_LEN].to_vec()
    }
}

fn invalid_cursor() -> Error {
    Error::new(Code::InvalidCursor, "The cursor was not made for this list, these filters and this tenant.")
}
