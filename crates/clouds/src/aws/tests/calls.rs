use super::answers::{answer_of, error, images, instance, instance_types, instances, regions, session, sts_error};
use super::{open_aws, role, user};
use crate::test_support::{ScriptedTransport, answer, failure, lost, now, open, run};
use crate::{
    CatalogKind, CloudCredentials, CloudEndpoints, CloudErrorKind, CloudKind, MachineState, OPERATION_TAG, open_cloud,
};

#[test]
fn a_call_is_a_signed_form_to_the_host_of_its_region() {
    let transport = ScriptedTransport::in_order([answer(200, instances(&[], None))]);
    run(open_aws(&transport).list_machines(Some("eu-west-1"), Some("a+b/c="), now())).unwrap();
    let sent = transport.take_sent();
    assert_eq!((sent[0].method, sent[0].url.as_str()), ("POST", "https://ec2.eu-west-1.amazonaws.com/"));
    assert_eq!(sent[0].body, "Action=DescribeInstances&Version=2016-11-15&MaxResults=200&NextToken=a%2Bb%2Fc%3D");
    let headers: Vec<&str> = sent[0].headers.keys().map(String::as_str).collect();
    assert_eq!(headers, ["authorization", "content-type", "x-amz-date"]);
    assert_eq!(sent[0].headers["x-amz-date"], "20260102T030405Z");
    let authorization = &sent[0].headers["authorization"];
    let expected = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20260102/eu-west-1/ec2/aws4_request, \
                    SignedHeaders=content-type;host;x-amz-date, Signature=";
    assert!(authorization.starts_with(expected), "{authorization}");
}

#[test]
fn instances_of_all_reservations_are_machines() {
    let reservations = [
        format!("{}{}", instance("i-1", "running", Some("op_1")), instance("i-2", "shutting-down", None)),
        instance("i-3", "brand-new-state", None),
    ];
    let transport = ScriptedTransport::in_order([
        answer(200, instances(&reservations, Some("next"))),
        answer(200, instance_types()),
    ]);
    let page = run(open_aws(&transport).list_machines(Some("eu-west-1"), None, now())).unwrap();
    assert_eq!(page.next_cursor.as_deref(), Some("next"));
    let states: Vec<MachineState> = page.machines.iter().map(|machine| machine.state).collect();
    assert_eq!(states, [MachineState::Running, MachineState::Terminating, MachineState::Unknown]);
    let first = &page.machines[0];
    assert_eq!(first.external_id, "i-1");
    assert_eq!(first.name.as_deref(), Some("web & co"));
    assert_eq!((first.region.as_str(), first.zone.as_deref()), ("eu-west-1", Some("eu-west-1a")));
    assert_eq!((first.size.id.as_str(), first.size.vcpus), ("t3.small", Some(2)));
    assert_eq!(first.size.memory_bytes, Some(2_147_483_648));
    assert_eq!(first.image.as_deref(), Some("ami-1"));
    assert_eq!(first.public_ips, ["203.0.113.9", "2001:db8::5"]);
    assert_eq!(first.private_ips, ["10.0.0.5", "10.0.0.6"]);
    assert_eq!(first.state_reason.as_deref(), Some("Client.UserInitiatedShutdown: User initiated"));
    assert_eq!(first.operation_id.as_deref(), Some("op_1"));
    assert_eq!(first.tags["empty"], "");
    assert_eq!(page.machines[2].raw_state, "brand-new-state");
}

#[test]
fn types_are_looked_up_once_and_stay_unknown_where_that_is_denied() {
    let page = || answer(200, instances(&[instance("i-1", "running", None)], None));
    let transport = ScriptedTransport::in_order([page(), answer(200, instance_types()), page()]);
    let aws = open_aws(&transport);
    for _ in 0..2 {
        let page = run(aws.list_machines(Some("eu-west-1"), None, now())).unwrap();
        assert_eq!(page.machines[0].size.memory_bytes, Some(2_147_483_648));
    }
    assert_eq!(transport.take_sent()[1].field("Filter.1.Value.1").as_deref(), Some("t3.small"));

    let denied = answer(403, error("UnauthorizedOperation", "You are not authorized"));
    let transport = ScriptedTransport::in_order([page(), denied, page()]);
    let aws = open_aws(&transport);
    for _ in 0..2 {
        let page = run(aws.list_machines(Some("eu-west-1"), None, now())).unwrap();
        assert_eq!((page.machines[0].size.vcpus, page.machines[0].size.memory_bytes), (Some(2), None));
    }

    let transport = ScriptedTransport::in_order([page(), answer(503, error("RequestLimitExceeded", "slow down"))]);
    let error = failure(run(open_aws(&transport).list_machines(Some("eu-west-1"), None, now())));
    assert_eq!(error.kind, CloudErrorKind::RateLimited);
}

#[test]
fn a_page_that_is_not_whole_is_no_page() {
    let whole = instances(&[instance("i-1", "running", None)], None);
    let bodies = [
        whole[..whole.len() - 10].to_owned(),
        whole.replace("DescribeInstances", "DescribeVolumes"),
        whole.replace("<instanceId>i-1</instanceId>", ""),
        answer_of("DescribeInstances", ""),
        "<html><body>Welcome to the hotel</body></html>".to_owned(),
        String::new(),
    ];
    for body in bodies {
        let transport = ScriptedTransport::in_order([answer(200, body.clone())]);
        let error = failure(run(open_aws(&transport).list_machines(Some("eu-west-1"), None, now())));
        assert_eq!(error.kind, CloudErrorKind::Unavailable, "{body}");
    }
    // A token that leads to the same page again would never end.
    let transport = ScriptedTransport::in_order([answer(200, instances(&[], Some("same")))]);
    assert!(run(open_aws(&transport).list_machines(Some("eu-west-1"), Some("same"), now())).is_err());
}

#[test]
fn a_machine_that_is_gone_is_none() {
    let transport = ScriptedTransport::in_order([
        answer(400, error("InvalidInstanceID.NotFound", "The instance ID 'i-1' does not exist")),
        answer(200, instances(&[instance("i-1", "stopped", None)], None)),
        answer(200, instance_types()),
        lost(true),
    ]);
    let aws = open_aws(&transport);
    assert_eq!(run(aws.find_machine("eu-west-1", "i-1", now())).unwrap(), None);
    let machine = run(aws.find_machine("eu-west-1", "i-1", now())).unwrap().unwrap();
    assert_eq!(machine.state, MachineState::Stopped);
    let error = failure(run(aws.find_machine("eu-west-1", "i-1", now())));
    assert_eq!(error.kind, CloudErrorKind::Unavailable);
    assert_eq!(transport.take_sent()[0].field("InstanceId.1").as_deref(), Some("i-1"));
}

#[test]
fn machines_are_found_by_their_operation_over_empty_pages() {
    let transport = ScriptedTransport::in_order([
        answer(200, instances(&[], Some("more"))),
        answer(
            200,
            instances(&[instance("i-1", "pending", Some("op_1")), instance("i-2", "pending", Some("op_12"))], None),
        ),
        answer(200, instance_types()),
    ]);
    let found = run(open_aws(&transport).find_by_operation("eu-west-1", "op_1", now())).unwrap();
    assert_eq!(found.iter().map(|machine| machine.external_id.as_str()).collect::<Vec<_>>(), ["i-1"]);
    let sent = transport.take_sent();
    assert_eq!(sent[0].field("Filter.1.Name"), Some(format!("tag:{OPERATION_TAG}")));
    assert_eq!(sent[0].field("Filter.1.Value.1").as_deref(), Some("op_1"));
    assert_eq!(sent[1].field("NextToken").as_deref(), Some("more"));
    let transport = ScriptedTransport::in_order([]);
    let error = failure(run(open_aws(&transport).find_by_operation("eu-west-1", "op_*", now())));
    assert_eq!(error.kind, CloudErrorKind::Invalid);
}

#[test]
fn a_region_that_is_no_region_is_not_called() {
    let transport = ScriptedTransport::in_order([]);
    let aws = open_aws(&transport);
    for region in [Some("eu-west-1.evil.example/"), None] {
        let error = failure(run(aws.list_machines(region, None, now())));
        assert_eq!(error.kind, CloudErrorKind::Invalid);
    }
    let error = failure(run(aws.list_machines(Some("us-iso-east-1"), None, now())));
    assert_eq!((error.kind, error.code.as_deref()), (CloudErrorKind::Invalid, Some("unsupported_partition")));
    // An operator's endpoint has regions of its own.
    let credentials = CloudCredentials::parse(CloudKind::Aws, &user()).unwrap();
    let endpoints = CloudEndpoints::parse(["aws=http://127.0.0.1:5000"]).unwrap();
    let transport = ScriptedTransport::in_order([answer(200, instances(&[], None))]);
    run(open_cloud(credentials, &endpoints, transport).list_machines(Some("local"), None, now())).unwrap();
}

#[test]
fn catalogs_are_lists_to_choose_from() {
    // Backups of every night, which leave room for the well-known ones.
    let own = "<item><imageId>ami-own</imageId><name>backup</name></item>".repeat(600);
    let own = answer_of("DescribeImages", &format!("<imagesSet>{own}</imagesSet>"));
    let transport = ScriptedTransport::in_order([
        answer(200, regions()),
        answer(200, instance_types()),
        answer(200, images()),
        answer(200, own),
    ]);
    let aws = open_aws(&transport);
    let ids = |kind, region| {
        let items = run(aws.list_catalog(kind, region, now())).unwrap();
        items.into_iter().map(|item| item.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(CatalogKind::Regions, None), ["eu-west-1", "us-east-1"]);
    assert_eq!(ids(CatalogKind::Sizes, Some("eu-west-1")), ["t3.small", "c5d.large"]);
    let images = ids(CatalogKind::Images, Some("eu-west-1"));
    assert_eq!((&images[..3], images.len()), (&["ami-new", "ami-ubuntu", "ami-own"].map(str::to_owned)[..], 500));
    assert_eq!(transport.take_sent()[0].url, "https://ec2.us-east-1.amazonaws.com/");
}

#[test]
fn a_role_is_assumed_once_until_shortly_before_its_end() {
    let page = || answer(200, instances(&[], None));
    let transport = ScriptedTransport::in_order([
        answer(200, session("2026-01-02T04:04:05Z")),
        page(),
        page(),
        answer(200, session("2026-01-02T05:04:05Z")),
        page(),
    ]);
    let aws = open(CloudKind::Aws, &role(), &transport);
    for at in [now(), now().plus_ms(54 * 60_000), now().plus_ms(56 * 60_000)] {
        run(aws.list_machines(Some("eu-west-1"), None, at)).unwrap();
    }
    let sent = transport.take_sent();
    assert_eq!(sent[0].url, "https://sts.eu-west-1.amazonaws.com/");
    assert_eq!(
        sent[0].body,
        "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Ftenant-control\
         &RoleSessionName=tenant-control&ExternalId=ten_1"
    );
    assert_eq!(sent[1].headers["x-amz-security-token"], "canary-session-token");
    assert!(sent[1].headers["authorization"].contains("Credential=ASIASESSION/"));
    assert!(sent[1].headers["authorization"].contains("x-amz-security-token"));
    assert_eq!(sent.len(), 5);
}

#[test]
fn a_role_that_may_not_be_assumed_refuses_the_credentials() {
    let transport = ScriptedTransport::in_order([answer(403, sts_error("AccessDenied", "User: x is not authorized"))]);
    let error = failure(run(open(CloudKind::Aws, &role(), &transport).list_machines(Some("eu-west-1"), None, now())));
    assert_eq!(error.kind, CloudErrorKind::Auth);
    assert!(error.detail.contains("assume the role") && error.detail.contains("external id"), "{error}");
}

#[test]
fn a_session_that_is_refused_is_not_used_again() {
    let transport = ScriptedTransport::in_order([
        answer(200, session("2026-01-02T04:04:05Z")),
        answer(
            400,
            error("ExpiredToken", "The security token included in the request is expired: canary-session-token"),
        ),
        answer(200, session("2026-01-02T04:04:05Z")),
        answer(200, instances(&[], None)),
    ]);
    let aws = open(CloudKind::Aws, &role(), &transport);
    let error = failure(run(aws.list_machines(Some("eu-west-1"), None, now())));
    assert_eq!(error.kind, CloudErrorKind::Auth);
    run(aws.list_machines(Some("eu-west-1"), None, now())).unwrap();
}

#[test]
fn errors_say_what_is_wrong_and_repeat_no_secret() {
    let canonical =
        "The request signature we calculated does not match. The Canonical String should have been 'POST canary'";
    for (status, body, kind, words) in [
        (403, sts_error("SignatureDoesNotMatch", canonical), CloudErrorKind::Auth, "Check the secret access key"),
        (
            403,
            sts_error("SignatureDoesNotMatch", "Signature expired: 1 is now earlier than 2"),
            CloudErrorKind::Unavailable,
            "clock",
        ),
        (
            401,
            error("AuthFailure", "AWS was not able to validate the provided access credentials"),
            CloudErrorKind::Auth,
            "not accept",
        ),
        (
            403,
            error("UnauthorizedOperation", "You may not. Encoded authorization failure message: canary"),
            CloudErrorKind::Permission,
            "You may not.",
        ),
        (
            400,
            error("Client.VcpuLimitExceeded", "You have requested more"),
            CloudErrorKind::Quota,
            "limit of the account",
        ),
        (502, "<html>Bad Gateway</html>".to_owned(), CloudErrorKind::Unavailable, "502"),
        (403, "denied by a proxy".to_owned(), CloudErrorKind::Unavailable, "403"),
    ] {
        let transport = ScriptedTransport::in_order([answer(status, body.clone())]);
        let error = failure(run(open_aws(&transport).list_machines(Some("eu-west-1"), None, now())));
        assert_eq!(error.kind, kind, "{body}");
        assert!(error.detail.contains(words), "{error}");
    }
}
