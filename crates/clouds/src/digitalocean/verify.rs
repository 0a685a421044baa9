//! What DigitalOcean lets a token do.
//!
//! Creating and tagging are checked by requests without any field, which cannot succeed: the token's scopes are checked
//! first, and then the fields. Finding by a tag is checked with a tag that no droplet has.

use kernel::base::Timestamp;
use serde_json::{Value, json};

use super::catalog::list_all_regions;
use super::tags::operation_word;
use crate::error::RequestEffect;
use crate::json::find_text;
use crate::rest::RestClient;
use crate::verification::{check_regions, judge_refusal};
use crate::{AccessCheck, CloudError, CloudErrorKind, CloudIdentity, Verification};

pub async fn verify_access(client: &RestClient, regions: &[String], now: Timestamp) -> Verification {
    let account = client.get("/account", &[], now).await;
    let check = AccessCheck::new("identity", "account:read", "call").optional();
    let identity = match &account {
        Ok(account) => read_identity(account).unwrap_or_else(|| client.identify_token()),
        // The token is good. Without this scope its team is unknown, and so the token stands for it.
        Err(error) if error.kind == CloudErrorKind::Permission => client.identify_token(),
        Err(error) => return refuse(check, regions, error.clone()),
    };
    let listed = client.get("/droplets", &[("per_page", "1")], now).await;
    let created = client.post("/droplets", &json!({}), RequestEffect::Read, now).await;
    let tagged = client.post("/tags", &json!({}), RequestEffect::Read, now).await;
    let no_operation = operation_word("none");
    let found = client.get("/droplets", &[("per_page", "1"), ("tag_name", no_operation.as_str())], now).await;
    // Droplets are read in regions that are closed to new ones, too.
    let regions_known = list_all_regions(client, now).await;
    let mut checks = vec![
        check.judged(&account, grant("account:read")),
        list_check().judged(&listed, grant("droplet:read")),
        judge_refusal(create_check(), &created, &grant("droplet:create")),
        judge_refusal(tag_check(), &tagged, &grant("tag:create")),
        find_check().judged(&found, grant("tag:read")),
    ];
    checks.extend(check_regions("regions:read", regions, Some(&regions_known)));
    Verification { identity: Some(identity), checks, failure: None }
}

fn refuse(check: AccessCheck, regions: &[String], error: CloudError) -> Verification {
    let new_token = "Create a personal access token in the control panel's API page, and save it here.";
    let mut checks = vec![check.failed(&error, new_token), list_check(), create_check(), tag_check(), find_check()];
    checks.extend(check_regions("regions:read", regions, None));
    Verification { identity: None, checks, failure: Some(error) }
}

fn list_check() -> AccessCheck {
    AccessCheck::new("list_machines", "droplet:read", "call")
}

fn create_check() -> AccessCheck {
    AccessCheck::new("create_machines", "droplet:create", "refused_request")
}

/// Required, because a droplet is found again by its tag when the answer to its creation is lost.
fn tag_check() -> AccessCheck {
    AccessCheck::new("tag_machines", "tag:create", "refused_request")
}

fn find_check() -> AccessCheck {
    AccessCheck::new("tag_machines", "tag:read", "call")
}

/// Droplets belong to the team, where there is one.
fn read_identity(answer: &Value) -> Option<CloudIdentity> {
    let account_id =
        find_text(answer, &["account", "team", "uuid"]).or_else(|| find_text(answer, &["account", "uuid"]))?;
    let principal = find_text(answer, &["account", "email"]).unwrap_or(account_id);
    Some(CloudIdentity { account_id: account_id.to_owned(), principal: principal.to_owned() })
}

fn grant(scope: &str) -> String {
    format!("Grant the token the scope {scope}: /documentation/guides/clouds/ lists them all.")
}
