//! How an agent presents its key: HTTP Basic with the key's id as the user and its secret as the password.

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernel::base::{ActorKind, ActorRef, Result, constant_time_eq, sha256};
use kernel::http::{App, CredentialOwner, CustomCredential};
use kernel::store::Db;

use super::store::find_live_key;
use super::{IngestKeyId, IngestKeySecret, IngestReach};

/// A well-formed ingest key that has not been checked yet.
pub struct IngestCredential {
    id: IngestKeyId,
    secret: IngestKeySecret,
}

/// A valid pair has 96 characters in base64; longer values are not decoded.
const CODED_BYTES_MAX: usize = 128;

impl IngestCredential {
    fn parse(header: &str) -> Option<Self> {
        let (scheme, coded) = header.split_once(' ')?;
        let coded = coded.trim_matches(' ');
        if !scheme.eq_ignore_ascii_case("basic") || coded.len() > CODED_BYTES_MAX {
            return None;
        }
        let pair = String::from_utf8(BASE64.decode(coded).ok()?).ok()?;
        let (id, secret) = pair.split_once(':')?;
        Some(IngestCredential { id: id.parse().ok()?, secret: IngestKeySecret::parse(secret)? })
    }
}

impl CustomCredential for IngestCredential {
    const CHALLENGE: &'static str = "Basic realm=\"ingest\", charset=\"UTF-8\"";

    type Reach = IngestReach;

    fn from_headers(headers: &HeaderMap) -> Option<Self> {
        Self::parse(headers.get(header::AUTHORIZATION)?.to_str().ok()?)
    }

    fn secret_hash(&self) -> [u8; 32] {
        sha256(self.secret.with_id(self.id).as_bytes())
    }

    async fn find_owner(&self, all: &Db, app: &App) -> Result<Option<CredentialOwner<IngestReach>>> {
        let hash = self.secret.hash(self.id, &app.secrets);
        let live = find_live_key(all, self.id).await?.filter(|live| constant_time_eq(&live.secret_hash, &hash));
        let id = self.id.to_string();
        Ok(live.map(|live| {
            let name = format!("Ingest key {id}");
            CredentialOwner {
                tenant: live.tenant_id,
                id: id.as_str().into(),
                actor: ActorRef { kind: ActorKind::System, id: Some(id), name },
                reach: IngestReach { key_id: self.id, organization_id: live.organization_id },
            }
        }))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const ID: &str = "ing_01jd8z6v2mfkpb7h3q9xw5t4ra";
    const SECRET: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcd";

    fn basic_header(pair: &str) -> String {
        format!("Basic {}", BASE64.encode(pair))
    }

    #[test]
    fn a_pair_is_read_however_the_scheme_is_spelt() {
        let header = basic_header(&format!("{ID}:{SECRET}"));
        for header in [header.clone(), header.replace("Basic", "basic"), header.replace("Basic", "BASIC ")] {
            let credential = IngestCredential::parse(&header).unwrap();
            assert_eq!(credential.secret.with_id(credential.id), format!("{ID}:{SECRET}"), "{header}");
            assert_eq!(credential.secret.last_four(), "abcd");
        }
    }

    #[test]
    fn what_cannot_be_a_key_is_refused_without_asking_the_database() {
        let good = BASE64.encode(format!("{ID}:{SECRET}"));
        let endless = format!("Basic {}", "A".repeat(1 << 20));
        let refused = [
            good.clone(),
            format!("Bearer {good}"),
            format!("Basic {}", good.trim_end_matches('=')).replace('M', "-"),
            format!("Basic {good}="),
            "Basic".to_owned(),
            "Basic ".to_owned(),
            endless,
            basic_header(""),
            basic_header(ID),
            basic_header(&format!("{ID}:")),
            basic_header(&format!(":{SECRET}")),
            basic_header(&format!("{ID}:{SECRET}x")),
            basic_header(&format!("{ID}:{}", &SECRET[1..])),
            basic_header(&format!("{ID}:{}é", &SECRET[2..])),
            basic_header(&format!("{ID}:{}", SECRET.replace('A', "-"))),
            basic_header(&format!("{}:{SECRET}", ID.replace("ing", "key"))),
            basic_header(&format!("{SECRET}:{ID}")),
        ];
        for header in refused {
            let shown: String = header.chars().take(120).collect();
            assert!(IngestCredential::parse(&header).is_none(), "{shown}");
        }
    }
}
