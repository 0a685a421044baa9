//! What Hetzner lets a token do.
//!
//! Tokens are of two kinds, for reading or for reading and writing. Writing is checked by a request for a server without a
//! name, a type and an image, which cannot succeed: Hetzner checks the token first, and then the fields. The API does not
//! tell the project of a token, so the token stands for it.

use kernel::base::Timestamp;
use serde_json::json;

use super::catalog::list_locations;
use crate::error::RequestEffect;
use crate::rest::RestClient;
use crate::verification::{check_regions, judge_refusal};
use crate::{AccessCheck, Verification};

pub async fn verify_access(client: &RestClient, regions: &[String], now: Timestamp) -> Verification {
    let identity = AccessCheck::new("identity", "API token", "call");
    let list = AccessCheck::new("list_machines", "read servers", "call");
    let create = AccessCheck::new("create_machines", "write servers", "refused_request");
    let listed = client.get("/servers", &[("per_page", "1")], now).await;
    if let Err(error) = listed {
        let mut checks = vec![identity.failed(&error, NEW_TOKEN), list, create];
        checks.extend(check_regions("read locations", regions, None));
        return Verification { identity: None, checks, failure: Some(error) };
    }
    let created = client.post("/servers", &json!({}), RequestEffect::Read, now).await;
    let locations = list_locations(client, now).await;
    let mut checks = vec![identity.allowed(), list.allowed(), judge_refusal(create, &created, NEW_TOKEN)];
    checks.extend(check_regions("read locations", regions, Some(&locations)));
    Verification { identity: Some(client.identify_token()), checks, failure: None }
}

const NEW_TOKEN: &str =
    "Create a token with the permission Read & Write in the project's Security, API tokens, and save it here.";
