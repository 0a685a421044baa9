use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};

use kernel::base::MINUTE_MS;

use super::super::call_clock::CallClock;
use super::super::client::AwsClient;
use super::super::verify::verify_access;
use super::answers::{error, identity, images, instance, instance_types, instances, regions, session, sts_error};
use super::{SECRET, open_aws, role};
use crate::credentials::AwsCredentials;
use crate::test_support::{Answer, CANARY, ScriptedTransport, SentRequest, answer, lost, now, open, run};
use crate::{AccessResult, CloudErrorKind, CloudKind, CloudResponse, Verification};

/// AWS, with some actions answered otherwise.
fn verify(
    regions: &[&str],
    special: impl Fn(&SentRequest, &str) -> Option<Answer> + Send + Sync + 'static,
) -> Verification {
    let transport = ScriptedTransport::answering(move |request| {
        let action = request.field("Action").unwrap();
        special(request, &action).unwrap_or_else(|| usual(&action))
    });
    let regions: Vec<String> = regions.iter().map(|region| (*region).to_owned()).collect();
    let verification = run(open_aws(&transport).verify(&regions, now()));
    assert!(!format!("{verification:?}").contains(CANARY));
    transport.take_sent();
    verification
}

fn usual(action: &str) -> Answer {
    match action {
        "GetCallerIdentity" => answer(200, identity()),
        "AssumeRole" => answer(200, session("2026-01-02T04:04:05Z")),
        "DescribeRegions" => answer(200, regions()),
        "DescribeInstances" => answer(200, instances(&[], None)),
        "DescribeInstanceTypes" => answer(200, instance_types()),
        "DescribeImages" => answer(200, images()),
        "RunInstances" => answer(412, error("DryRunOperation", "Request would have succeeded")),
        _ => panic!("{action} is not expected"),
    }
}

/// `list_machines eu-west-1 allowed`, of every check.
fn lines(verification: &Verification) -> Vec<String> {
    verification
        .checks
        .iter()
        .map(|check| {
            let region = check.region.as_deref().unwrap_or("-");
            format!("{} {region} {:?}", check.action, check.result)
        })
        .collect()
}

#[test]
fn all_that_is_needed_is_checked_in_every_region() {
    let verification = verify(&["eu-west-1", "us-east-1"], |request, action| {
        if action == "RunInstances" {
            assert_eq!(request.field("DryRun").as_deref(), Some("true"));
            assert_eq!(request.field("ImageId").as_deref(), Some("ami-new"));
            assert_eq!(request.field("ClientToken"), None);
        }
        None
    });
    let identity = verification.identity.as_ref().unwrap();
    assert_eq!(identity.account_id, "123456789012");
    assert_eq!(identity.principal, "arn:aws:iam::123456789012:user/ops");
    assert!(verification.failure.is_none());
    let mut expected = vec!["sts:GetCallerIdentity - Allowed".to_owned(), "ec2:DescribeRegions - Allowed".to_owned()];
    for region in ["eu-west-1", "us-east-1"] {
        for action in ["DescribeInstances", "DescribeInstanceTypes", "DescribeImages", "RunInstances", "CreateTags"] {
            expected.push(format!("ec2:{action} {region} Allowed"));
        }
    }
    assert_eq!(lines(&verification), expected);
    let required = verification.checks.iter().filter(|check| check.required).count();
    assert_eq!(required, 1 + 2 * 3);
}

#[test]
fn a_reader_is_told_what_to_grant() {
    for body in [
        error("UnauthorizedOperation", "You are not authorized. Encoded authorization failure message: canary"),
        // As moto says it.
        sts_error("AccessDenied", "User: x is not authorized to perform: ec2:RunInstances"),
    ] {
        let verification =
            verify(&["eu-west-1"], move |_, action| (action == "RunInstances").then(|| answer(403, body.clone())));
        let create = verification.checks.iter().find(|check| check.capability == "create_machines").unwrap();
        assert_eq!((create.result, create.method), (AccessResult::Denied, "dry_run"));
        assert!(create.remediation.as_ref().unwrap().starts_with("Grant ec2:RunInstances"));
        let tag = verification.checks.iter().find(|check| check.capability == "tag_machines").unwrap();
        assert_eq!(tag.result, AccessResult::Skipped);
        assert!(verification.identity.is_some());
    }
}

#[test]
fn tags_alone_can_be_denied() {
    let verification = verify(&["eu-west-1"], |request, action| {
        let has_tags = request.field("TagSpecification.1.ResourceType").is_some();
        (action == "RunInstances" && has_tags).then(|| answer(403, error("UnauthorizedOperation", "no tags")))
    });
    let lines = lines(&verification);
    assert_eq!(lines[5..], ["ec2:RunInstances eu-west-1 Allowed", "ec2:CreateTags eu-west-1 Denied"]);
    let remediation = verification.checks[6].remediation.clone().unwrap();
    assert!(remediation.starts_with("Grant ec2:CreateTags"), "{remediation}");
}

#[test]
fn refused_credentials_skip_the_rest() {
    let refused = |_: &SentRequest, action: &str| {
        (action == "GetCallerIdentity").then(|| answer(403, sts_error("InvalidClientTokenId", "The token is invalid")))
    };
    let verification = verify(&["us-east-1"], refused);
    assert!(verification.identity.is_none());
    assert_eq!(verification.failure.as_ref().unwrap().kind, CloudErrorKind::Auth);
    let results: Vec<AccessResult> = verification.checks.iter().map(|check| check.result).collect();
    assert_eq!(results[0], AccessResult::Denied);
    assert!(results[1..].iter().all(|result| *result == AccessResult::Skipped));
    assert_eq!(results.len(), 7);
}

#[test]
fn a_wrong_clock_and_a_dead_network_are_not_wrong_credentials() {
    let skewed = "Signature expired: 20260102T030405Z is now earlier than 20260102T040000Z";
    for special in [answer(403, sts_error("SignatureDoesNotMatch", skewed)), lost(false), answer(503, "busy")] {
        let special = std::sync::Mutex::new(Some(special));
        let verification = verify(&["us-east-1"], move |_, _| special.lock().unwrap().take());
        assert_eq!(verification.checks[0].result, AccessResult::Error);
        assert_eq!(verification.failure.unwrap().kind, CloudErrorKind::Unavailable);
    }
}

/// STS accepts a clock that is 15 minutes off, EC2 one of 5, and does not say that this is why.
#[test]
fn a_clock_that_ec2_does_not_accept_is_no_region_that_is_not_enabled() {
    let refused = error("AuthFailure", "AWS was not able to validate the provided access credentials");
    let verification = verify(&["eu-west-1"], move |request, _| {
        let headers = vec![("date".to_owned(), "Fri, 02 Jan 2026 03:12:05 GMT".to_owned())];
        let answer = CloudResponse { status: 401, headers, body: refused.clone().into_bytes() };
        request.url.contains("//ec2.").then_some(Ok(answer))
    });
    assert!(verification.identity.is_some());
    for check in verification.checks.iter().skip(1) {
        assert_eq!((check.result, check.code.as_deref()), (AccessResult::Error, Some("RequestTimeTooSkewed")));
        assert!(check.remediation.as_ref().unwrap().contains("Set the clock"), "{check:?}");
    }
}

#[test]
fn each_call_of_a_verification_is_signed_when_it_is_sent() {
    let transport = ScriptedTransport::answering(|request| usual(&request.field("Action").unwrap()));
    let credentials = AwsCredentials {
        access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret_access_key: SECRET.to_owned(),
        role_arn: None,
        external_id: None,
    };
    let elapsed_ms = AtomicI64::new(0);
    let clock = CallClock::with_elapsed(now(), move || elapsed_ms.fetch_add(MINUTE_MS, Ordering::Relaxed));
    let client = AwsClient::new(credentials, None, transport.clone());
    run(verify_access(&client, &["eu-west-1".to_owned()], &clock));
    let sent = transport.take_sent();
    let times: BTreeSet<&String> = sent.iter().map(|request| &request.headers["x-amz-date"]).collect();
    assert_eq!((times.len(), sent.len()), (6, 6), "a minute passes between two calls");
}

#[test]
fn a_failure_that_passes_is_no_missing_permission() {
    for broken in ["DescribeImages", "RunInstances"] {
        let busy = || answer(503, error("RequestLimitExceeded", "slow down"));
        for failure in [busy as fn() -> Answer, || lost(true), || answer(500, error("InternalError", "oops"))] {
            let verification = verify(&["eu-west-1"], move |_, action| (action == broken).then(failure));
            for check in &verification.checks[5..] {
                assert_eq!(check.result, AccessResult::Error, "{broken}: {check:?}");
                assert!(!check.remediation.as_ref().unwrap().contains("Grant"), "{check:?}");
            }
        }
    }
    let verification = verify(&["eu-west-1"], |_, action| {
        (action == "DescribeImages").then(|| answer(403, error("UnauthorizedOperation", "no")))
    });
    assert_eq!(verification.checks[5].result, AccessResult::Unknown);
    assert!(verification.checks[5].remediation.as_ref().unwrap().contains("Grant ec2:DescribeImages"));
}

#[test]
fn a_policy_that_limits_types_is_tried_with_a_type_in_use() {
    let implicit = "no identity-based policy allows the ec2:RunInstances action";
    let explicit = "with an explicit deny in a service control policy";
    for (message, type_in_use, allowed_type, result, words) in [
        (implicit, Some("t3.small"), "t3.small", AccessResult::Allowed, ""),
        (explicit, Some("t3.small"), "t3.small", AccessResult::Allowed, ""),
        (implicit, Some("t3.small"), "m5.large", AccessResult::Denied, "the check has tried t3.micro and t3.small"),
        (implicit, None, "m5.large", AccessResult::Denied, "the check has tried t3.micro"),
        (explicit, None, "m5.large", AccessResult::Unknown, "A policy denies the dry run"),
    ] {
        let verification = verify(&["eu-west-1"], move |request, action| match action {
            "DescribeInstances" => {
                let machines = type_in_use.map(|_| instance("i-1", "running", None));
                Some(answer(200, instances(machines.as_slice(), None)))
            }
            "RunInstances" if request.field("InstanceType").as_deref() != Some(allowed_type) => {
                Some(answer(403, error("UnauthorizedOperation", message)))
            }
            _ => None,
        });
        let create = &verification.checks[5];
        assert_eq!(create.result, result, "{create:?}");
        assert!(create.remediation.as_deref().unwrap_or_default().contains(words), "{create:?}");
    }
}

#[test]
fn the_european_sovereign_cloud_is_asked_alone() {
    let transport = ScriptedTransport::answering(|_| answer(403, sts_error("InvalidClientTokenId", "invalid")));
    let verification = run(open_aws(&transport).verify(&["eusc-de-east-1".to_owned()], now()));
    assert_eq!(verification.failure.unwrap().kind, CloudErrorKind::Auth);
    let urls: Vec<String> = transport.take_sent().into_iter().map(|request| request.url).collect();
    assert_eq!(urls, ["https://sts.eusc-de-east-1.amazonaws.eu/"], "keys of it are unknown elsewhere");
}

#[test]
fn a_partition_that_is_not_supported_is_told_as_such() {
    let transport = ScriptedTransport::in_order([]);
    let failure = run(open_aws(&transport).verify(&["us-iso-east-1".to_owned()], now())).failure.unwrap();
    assert_eq!(failure.kind, CloudErrorKind::Invalid);
    assert!(failure.detail.contains("not supported"), "{failure}");
    // A region beside it is verified all the same.
    let verification = verify(&["us-iso-east-1", "eu-west-1"], |_, _| None);
    let check = &verification.checks[2];
    assert_eq!((check.result, check.code.as_deref()), (AccessResult::Denied, Some("unsupported_partition")));
    assert_eq!(verification.checks[7].result, AccessResult::Allowed);
}

#[test]
fn a_region_that_is_not_enabled_is_told_as_such() {
    // One that the account's list of regions does not have.
    let verification = verify(&["ap-east-9", "eu-west-1"], |_, _| None);
    let check = &verification.checks[2];
    assert_eq!((check.result, check.code.as_deref()), (AccessResult::Denied, Some("region_not_enabled")));
    assert!(check.remediation.as_ref().unwrap().contains("ap-east-9 does not exist or is not enabled"));
    assert_eq!(verification.checks[3].result, AccessResult::Skipped);
    assert_eq!(verification.checks[7].result, AccessResult::Allowed);

    // One that does not know the keys, where regions may not be listed.
    for (code, status) in [("AuthFailure", 401), ("OptInRequired", 403)] {
        let verification = verify(&["eu-west-1"], move |_, action| match action {
            "DescribeRegions" => Some(answer(403, error("UnauthorizedOperation", "no"))),
            "DescribeInstances" => Some(answer(status, error(code, "no"))),
            _ => None,
        });
        let check = &verification.checks[2];
        assert_eq!((check.result, check.code.as_deref()), (AccessResult::Denied, Some(code)));
        assert!(check.remediation.as_ref().unwrap().contains("not enabled"));
    }

    // STS of such a region does not know them either: another one does.
    let verification = verify(&["me-central-1"], |request, action| {
        (action == "GetCallerIdentity" && request.url.contains("me-central-1"))
            .then(|| answer(403, sts_error("InvalidClientTokenId", "The security token is invalid")))
    });
    assert!(verification.identity.is_some());
}

#[test]
fn what_cannot_be_tried_is_unknown() {
    let no_images = "<DescribeImagesResponse><imagesSet/></DescribeImagesResponse>";
    let verification =
        verify(&["eu-west-1"], move |_, action| (action == "DescribeImages").then(|| answer(200, no_images)));
    assert_eq!(verification.checks[5].result, AccessResult::Unknown);

    let no_vpc = error("VPCIdNotSpecified", "No default VPC for this user");
    let verification =
        verify(&["eu-west-1"], move |_, action| (action == "RunInstances").then(|| answer(400, no_vpc.clone())));
    let check = &verification.checks[5];
    assert_eq!((check.result, check.code.as_deref()), (AccessResult::Unknown, Some("VPCIdNotSpecified")));
    assert!(check.remediation.as_ref().unwrap().contains("default VPC"));

    let odd = error("SomethingOdd", "what?");
    let verification =
        verify(&["eu-west-1"], move |_, action| (action == "RunInstances").then(|| answer(400, odd.clone())));
    let check = &verification.checks[5];
    assert_eq!((check.result, check.code.as_deref()), (AccessResult::Unknown, Some("SomethingOdd")));
}

#[test]
fn with_a_role_it_is_the_role_that_is_verified() {
    let transport = ScriptedTransport::answering(|request| usual(&request.field("Action").unwrap()));
    run(open(CloudKind::Aws, &role(), &transport).verify(&["eu-west-1".to_owned()], now()));
    let sent = transport.take_sent();
    assert_eq!(sent[0].field("Action").as_deref(), Some("AssumeRole"));
    assert!(sent[1..].iter().all(|request| request.headers["authorization"].contains("Credential=ASIASESSION/")));
}
