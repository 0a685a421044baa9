//! Whether instances can be created and tagged, by dry runs: AWS checks the permissions and answers with an error either way.
//!
//! A policy may allow some instance types alone, and a denial does not say so. The dry run is of one type, so a denied one is
//! tried again with a type that is in use in the region.

use super::CLOUD;
use super::call_clock::CallClock;
use super::client::AwsClient;
use super::create::METADATA_TOKENS;
use super::query::{AwsCall, read_answer};
use crate::error::RequestEffect;
use crate::{AccessCheck, CloudError, CloudErrorKind, CloudResponse, OPERATION_TAG};

/// Small, and offered in nearly every region.
const USUAL_TYPE: &str = "t3.micro";

pub struct DryRun<'a> {
    pub client: &'a AwsClient,
    pub region: &'a str,
    pub image: &'a str,
    /// Of an instance that exists.
    pub type_in_use: Option<String>,
    pub clock: &'a CallClock,
}

/// The checks of creation and of tags, made.
pub struct CreationChecks {
    pub create: AccessCheck,
    pub tag: AccessCheck,
}

impl CreationChecks {
    /// Without the means to try it.
    pub fn unknown(self, reason: &str) -> Self {
        CreationChecks { create: self.create.unknown(reason), tag: self.tag }
    }

    /// A failure that is no denial. Where it passes, both checks are made again soon.
    pub fn failed(self, error: &CloudError) -> Self {
        let tag = if error.kind.is_passing() { self.tag.failed(error, "") } else { self.tag };
        CreationChecks { create: judge_failure(self.create, error), tag }
    }
}

impl DryRun<'_> {
    /// A dry run with tags. Where that is denied, one without tells which permission is missing.
    pub async fn check_creation(&self, checks: CreationChecks) -> CreationChecks {
        let allow = |CreationChecks { create, tag }| CreationChecks { create: create.allowed(), tag: tag.allowed() };
        let denial = match self.ask(USUAL_TYPE, true).await {
            Ok(()) => return allow(checks),
            Err(error) if error.kind == CloudErrorKind::Permission => error,
            Err(error) => return checks.failed(&error),
        };
        let untagged_denial = match self.ask(USUAL_TYPE, false).await {
            Ok(()) => {
                let tag = checks.tag.failed(&denial, grant("ec2:CreateTags"));
                return CreationChecks { create: checks.create.allowed(), tag };
            }
            Err(error) if error.kind == CloudErrorKind::Permission => error,
            Err(error) => return checks.failed(&error),
        };
        let other_type = self.type_in_use.as_deref().filter(|other| *other != USUAL_TYPE);
        if let Some(other_type) = other_type {
            match self.ask(other_type, true).await {
                Ok(()) => return allow(checks),
                Err(error) if error.kind.is_passing() => return checks.failed(&error),
                Err(_) => {}
            }
        }
        CreationChecks { create: judge_denial(checks.create, &untagged_denial, other_type), tag: checks.tag }
    }

    /// Success is an error of its own. A success without one would mean that the dry run was none.
    async fn ask(&self, instance_type: &str, has_tags: bool) -> Result<(), CloudError> {
        let mut call = AwsCall::ec2(self.region, "RunInstances")
            .param("DryRun", "true")
            .param("ImageId", self.image)
            .param("InstanceType", instance_type)
            .param("MinCount", "1")
            .param("MaxCount", "1")
            .param("MetadataOptions.HttpTokens", METADATA_TOKENS);
        if has_tags {
            for (number, resource) in [(1, "instance"), (2, "volume")] {
                call = call
                    .param(format!("TagSpecification.{number}.ResourceType"), resource)
                    .param(format!("TagSpecification.{number}.Tag.1.Key"), OPERATION_TAG)
                    .param(format!("TagSpecification.{number}.Tag.1.Value"), "dry-run");
            }
        }
        match self.client.send(&call, self.clock.now()).await {
            Err(error) if error.code.as_deref() == Some("DryRunOperation") => Ok(()),
            Err(error) => Err(error),
            Ok(response) => Err(CloudError::unreadable(CLOUD, response.status, RequestEffect::Read)),
        }
    }
}

/// The type of an instance on a page, the usual one only if there is no other.
pub fn find_type_in_use(page: &CloudResponse, call: &AwsCall<'_>) -> Option<String> {
    let mut types = Vec::new();
    let read = read_answer(page, call, &["reservationSet", "item"], |reservation| {
        let instances = reservation.list_items(&["instancesSet"]);
        types.extend(instances.filter_map(|one| one.find_text(&["instanceType"]).map(str::to_owned)));
    });
    types.sort_by_key(|one| one == USUAL_TYPE);
    read.ok().and(types.into_iter().next())
}

fn judge_failure(check: AccessCheck, error: &CloudError) -> AccessCheck {
    let has_no_network = matches!(error.code.as_deref(), Some("VPCIdNotSpecified" | "DefaultVpcDoesNotExist"));
    let check = check.failed(error, "");
    if has_no_network {
        let detail = "Machines are created in the default VPC, which this account does not have in this region. Seeing machines \
                      works.";
        check.unknown(detail)
    } else {
        check
    }
}

/// An explicit deny is on top of what is granted, and may be of this type or of missing tags: an order may be allowed.
fn judge_denial(check: AccessCheck, denial: &CloudError, other_type: Option<&str>) -> AccessCheck {
    let types = other_type.map_or_else(|| USUAL_TYPE.to_owned(), |other| format!("{USUAL_TYPE} and {other}"));
    let remediation = format!(
        "Grant ec2:RunInstances on instances, volumes, network interfaces, subnets, security groups, key pairs and images: \
         /documentation/guides/clouds/ has the policy. If a policy allows some instance types alone, orders of those may \
         succeed all the same: the check has tried {types}."
    );
    let check = check.failed(denial, remediation);
    if denial.detail.contains("explicit deny") {
        let detail = format!(
            "A policy denies the dry run, whatever is granted. If it is about instance types or tags, orders that keep to it may \
             succeed: the check has tried {types} with the tag {OPERATION_TAG} alone. {}",
            denial.detail
        );
        return check.unknown(detail);
    }
    check
}

/// What to do where a permission is denied.
pub fn grant(action: &str) -> String {
    format!("Grant {action} to the user or role: /documentation/guides/clouds/ has the policy.")
}
