//! What AWS lets the credentials do, region by region.

use futures_util::StreamExt;

use super::CLOUD;
use super::call_clock::CallClock;
use super::catalog::{find_image, list_regions};
use super::client::AwsClient;
use super::dry_run::{CreationChecks, DryRun, find_type_in_use, grant};
use super::query::{AwsCall, AwsService, check_region, read_answer};
use crate::aws_partition::{DEFAULT_REGION, find_fallback_region};
use crate::error::RequestEffect;
use crate::{AccessCheck, CloudError, CloudErrorKind, CloudIdentity, Verification};

/// Each has its own rate limit at AWS, so several at once are no burden.
const REGIONS_AT_ONCE: usize = 4;

pub async fn verify_access(client: &AwsClient, regions: &[String], clock: &CallClock) -> Verification {
    // If no region can be asked, the first whose name is one says why.
    let usable = regions.iter().find(|region| client.check_region(region).is_ok());
    let named = || regions.iter().find(|region| check_region(region).is_ok());
    let home = usable.or_else(named).map_or(DEFAULT_REGION, String::as_str);
    let check = AccessCheck::new("identity", "sts:GetCallerIdentity", "call");
    let (identity, home) = match load_identity(client, home, clock).await {
        Ok(found) => found,
        Err(error) => {
            let mut checks = vec![check.failed(&error, error.detail.clone()), regions_check()];
            checks.extend(regions.iter().flat_map(|region| RegionChecks::new(region).into_list()));
            return Verification { identity: None, checks, failure: Some(error) };
        }
    };
    let enabled = list_regions(client, home, clock.now()).await;
    let mut checks = vec![check.allowed(), regions_check().judged(&enabled, grant("ec2:DescribeRegions"))];
    let enabled: Vec<String> = enabled.unwrap_or_default().into_iter().map(|region| region.id).collect();
    let pending: Vec<_> = regions.iter().map(|region| check_one_region(client, region, &enabled, clock)).collect();
    let of_regions: Vec<Vec<AccessCheck>> =
        futures_util::stream::iter(pending).buffered(REGIONS_AT_ONCE).collect().await;
    checks.extend(of_regions.into_iter().flatten());
    Verification { identity: Some(identity), checks, failure: None }
}

fn regions_check() -> AccessCheck {
    AccessCheck::new("read_catalog", "ec2:DescribeRegions", "call").optional()
}

/// Asks the region's own STS, which does not know the keys where the region is not enabled, and does not exist where there is no
/// such region; then one that always does. Also returns the region that has answered.
async fn load_identity<'a>(
    client: &AwsClient,
    home: &'a str,
    clock: &CallClock,
) -> Result<(CloudIdentity, &'a str), CloudError> {
    let is_of_region = |error: &CloudError| {
        let is_unknown = error.kind == CloudErrorKind::Auth && error.code.as_deref() == Some("InvalidClientTokenId");
        is_unknown || error.kind == CloudErrorKind::Unavailable
    };
    match (load_identity_in(client, home, clock).await, find_fallback_region(home)) {
        (Err(error), Some(fallback)) if is_of_region(&error) => {
            load_identity_in(client, fallback, clock).await.map(|identity| (identity, fallback))
        }
        (result, _) => result.map(|identity| (identity, home)),
    }
}

async fn load_identity_in(client: &AwsClient, region: &str, clock: &CallClock) -> Result<CloudIdentity, CloudError> {
    let call = AwsCall::new(AwsService::Sts, region, "GetCallerIdentity");
    let response = client.send(&call, clock.now()).await?;
    let root = read_answer(&response, &call, &[], |_| {})?;
    let read = |name: &str| root.find_text(&["GetCallerIdentityResult", name]).map(str::to_owned);
    read("Account")
        .zip(read("Arn"))
        .map(|(account_id, principal)| CloudIdentity { account_id, principal })
        .ok_or_else(|| CloudError::unreadable(CLOUD, response.status, RequestEffect::Read))
}

/// The checks of a region, skipped until they are made.
struct RegionChecks {
    list: AccessCheck,
    types: AccessCheck,
    images: AccessCheck,
    creation: CreationChecks,
}

impl RegionChecks {
    fn new(region: &str) -> Self {
        let check = |capability, action, method| AccessCheck::new(capability, action, method).in_region(region);
        RegionChecks {
            list: check("list_machines", "ec2:DescribeInstances", "call"),
            types: check("read_catalog", "ec2:DescribeInstanceTypes", "call").optional(),
            images: check("read_catalog", "ec2:DescribeImages", "call").optional(),
            creation: CreationChecks {
                create: check("create_machines", "ec2:RunInstances", "dry_run"),
                tag: check("tag_machines", "ec2:CreateTags", "dry_run"),
            },
        }
    }

    fn into_list(self) -> Vec<AccessCheck> {
        vec![self.list, self.types, self.images, self.creation.create, self.creation.tag]
    }
}

async fn check_one_region(client: &AwsClient, region: &str, enabled: &[String], clock: &CallClock) -> Vec<AccessCheck> {
    let mut checks = RegionChecks::new(region);
    if let Err(error) = client.check_region(region) {
        checks.list = checks.list.denied(error.code.as_deref().unwrap_or("invalid_region"), error.detail);
        return checks.into_list();
    }
    let not_enabled = format!(
        "The region {region} does not exist or is not enabled for this account. Enable it in the account's settings at AWS, \
         or remove it from regions."
    );
    if !enabled.is_empty() && !enabled.iter().any(|name| name == region) {
        checks.list = checks.list.denied("region_not_enabled", not_enabled);
        return checks.into_list();
    }
    let list = AwsCall::ec2(region, "DescribeInstances").param("MaxResults", "5");
    let listed = client.send(&list, clock.now()).await;
    // The identity is known, so keys that a region does not accept are those of a region that is not enabled.
    let is_not_enabled =
        |error: &CloudError| error.kind == CloudErrorKind::Auth || error.code.as_deref() == Some("OptInRequired");
    if let Err(error) = &listed
        && is_not_enabled(error)
    {
        checks.list = checks.list.failed(error, not_enabled);
        return checks.into_list();
    }
    checks.list = checks.list.judged(&listed, grant("ec2:DescribeInstances"));
    let types = AwsCall::ec2(region, "DescribeInstanceTypes").param("MaxResults", "5");
    let types = client.send(&types, clock.now()).await;
    checks.types = checks.types.judged(&types, grant("ec2:DescribeInstanceTypes"));
    let image = find_image(client, region, clock.now()).await;
    checks.images = checks.images.judged(&image, grant("ec2:DescribeImages"));
    let type_in_use = listed.ok().and_then(|page| find_type_in_use(&page, &list));
    checks.creation = match image {
        Ok(Some(image)) => {
            let dry_run = DryRun { client, region, image: &image, type_in_use, clock };
            dry_run.check_creation(checks.creation).await
        }
        Ok(None) => checks.creation.unknown("The account sees no image of Amazon Linux to try it with."),
        Err(error) if error.kind.is_passing() => checks.creation.failed(&error),
        Err(_) => checks.creation.unknown("Grant ec2:DescribeImages: the dry run needs an image."),
    };
    checks.into_list()
}
