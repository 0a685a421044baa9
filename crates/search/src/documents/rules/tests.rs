//! The documents of rows.

use kernel::base::RecordId;
use serde_json::json;

use super::super::kinds_with_field;
use super::*;

const AT: Timestamp = Timestamp::from_millis(7);

#[expect(clippy::unnecessary_wraps, reason = "most of what a row has may be missing")]
fn some_text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn sample_device() -> IndexedDevice {
    let nic = |mac: &str, ips: &[&str]| Nic {
        mac: some_text(mac),
        ips: ips.iter().map(|&ip| ip.to_owned()).collect(),
        ..Nic::default()
    };
    IndexedDevice {
        tenant: TenantId::NONE,
        id: "dev_1".to_owned(),
        hostname: some_text("web01.acme.test"),
        display_name: None,
        r#type: "server".to_owned(),
        platform: "linux".to_owned(),
        os_name: some_text("Debian GNU/Linux 12"),
        os_version: some_text("12.11"),
        status: "online".to_owned(),
        organization_id: some_text("org_1"),
        manufacturer: some_text("Dell Inc."),
        model: some_text("PowerEdge R640"),
        serial_number: some_text("7XK2P13"),
        asset_tag: some_text(" "),
        uuid: some_text("4C4C4544-0030-5710-8054-B7C04F4D3732"),
        primary_ip: some_text("192.0.2.10"),
        primary_mac: some_text("02:fc:00:00:00:01"),
        last_logged_user: some_text("root"),
        tags: vec!["Rack 7".to_owned()],
        nics: vec![
            nic("00:00:00:00:00:00", &["127.0.0.1", "::1"]),
            nic("02:FC:00:00:00:01", &["192.0.2.10"]),
            nic("02-fc-00-00-00-02", &["FE80:0::2"]),
        ],
        has_reported: true,
        is_deleted: false,
        updated_at: AT,
    }
}

fn sample_ticket() -> IndexedTicket {
    let custom_fields = json!({"building": "North", "floor": 3, "deep": {"text": "hidden"}});
    IndexedTicket {
        tenant: TenantId::NONE,
        id: "tkt_1".to_owned(),
        number: 42,
        subject: "Printer on fire".to_owned(),
        status: "open".to_owned(),
        priority: 2,
        organization_id: None,
        requester_name: some_text("Sam"),
        requester_email: some_text("Sam@acme.test"),
        assignee_id: some_text("usr_1"),
        team: None,
        category: some_text("Hardware"),
        tags: vec!["printer".to_owned()],
        external_id: some_text("JIRA-7"),
        custom_fields: custom_fields.as_object().cloned().unwrap_or_default(),
        description: some_text("Third floor."),
        updated_at: AT,
    }
}

fn exact_values(document: &SearchDocument, field: QueryField) -> Vec<&str> {
    document.exact.iter().filter(|(own, _)| *own == field).map(|(_, value)| value.as_str()).collect()
}

fn field_texts<'a>(texts: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    texts.iter().map(|(field, text)| (*field, text.as_str())).collect()
}

#[test]
fn a_device_is_found_by_its_names_and_addresses() {
    let document = sample_device().to_document();
    assert_eq!(document.title, "web01.acme.test");
    assert_eq!(document.subtitle, "server · Debian GNU/Linux 12 · Dell Inc. PowerEdge R640 · 192.0.2.10");
    assert_eq!(document.url, "/api/rmm/reports/asset-inventory?id=dev_1");
    assert_eq!((document.is_live, document.changed_at, document.organization_id.as_deref()), (true, AT, Some("org_1")));
    let names = [
        ("hostname", "web01"),
        ("serial_number", "7XK2P13"),
        ("primary_ip", "192.0.2.10"),
        ("primary_mac", "02:fc:00:00:00:01"),
    ];
    assert_eq!(field_texts(&document.names), names);
    let bodies = [
        ("hostname", "web01.acme.test"),
        ("model", "PowerEdge R640"),
        ("manufacturer", "Dell Inc."),
        ("os", "Debian GNU/Linux 12 12.11"),
        ("last_logged_user", "root"),
        ("uuid", "4C4C4544-0030-5710-8054-B7C04F4D3732"),
        ("tags", "Rack 7"),
        ("nics", "FE80:0::2"),
    ];
    assert_eq!(field_texts(&document.bodies), bodies);
    for (field, expected) in [
        (QueryField::Type, vec!["device"]),
        (QueryField::Status, vec!["online"]),
        (
            QueryField::Os,
            vec!["linux", "debian gnu/linux 12", "debian", "debian gnu/linux", "debian gnu/linux 12 12.11"],
        ),
        (QueryField::Serial, vec!["7xk2p13"]),
        (QueryField::Mac, vec!["02fc00000001", "02fc00000002"]),
        (QueryField::Ip, vec!["192.0.2.10", "fe80::2"]),
        (QueryField::Host, vec!["web01.acme.test", "web01"]),
        (QueryField::Tag, vec!["rack 7"]),
        (QueryField::Platform, vec!["linux"]),
        (QueryField::Model, vec!["poweredge r640"]),
    ] {
        assert_eq!(exact_values(&document, field), expected, "{field:?}");
    }
}

#[test]
fn a_record_is_known_by_each_of_its_names() {
    let uuid = "4c4c4544003057108054b7c04f4d3732";
    let device = IndexedDevice { display_name: some_text("Till 3"), ..sample_device() }.to_document();
    let grouped = "4c4c4544.0030.5710.8054b7c04f4d3732";
    let (name, code) = (IdentitySort::Name, IdentitySort::Code);
    let expected = [(name, "web01"), (name, "web01acmetest"), (name, "till3"), (code, "7xk2p13")];
    let expected = expected.into_iter().chain([grouped, uuid].map(|key| (IdentitySort::Uuid, key)));
    assert!(expected.eq(device.identities.iter().map(|(sort, key)| (*sort, key.as_str()))), "{:?}", device.identities);
    assert_eq!(device.serial.as_deref(), Some("7xk2p13"));
    assert_eq!(sample_ticket().to_document().identities, [(code, "jira7".to_owned())]);
    let bare =
        IndexedDevice { hostname: None, serial_number: some_text("-"), uuid: None, ..sample_device() }.to_document();
    assert_eq!((bare.identities, bare.serial), (Vec::new(), None));
}

#[test]
fn a_device_of_which_little_is_known_is_called_by_what_there_is() {
    let bare = || IndexedDevice { hostname: None, serial_number: None, ..sample_device() };
    for (row, title) in [
        (IndexedDevice { display_name: some_text("Till 3"), ..sample_device() }, "Till 3"),
        (IndexedDevice { hostname: some_text(" "), ..sample_device() }, "7XK2P13"),
        (bare(), "dev_1"),
    ] {
        assert_eq!(row.to_document().title, title);
    }
    let row = IndexedDevice {
        r#type: "other".to_owned(),
        os_name: None,
        manufacturer: some_text("HP"),
        model: some_text("HP EliteBook"),
        primary_ip: None,
        status: "stale".to_owned(),
        ..bare()
    };
    let document = row.to_document();
    assert_eq!((document.subtitle.as_str(), document.is_live), ("HP EliteBook", false));
    assert_eq!(exact_values(&document, QueryField::Os), ["linux"]);
}

#[test]
fn a_device_has_only_so_many_addresses() {
    let nic = |n: usize| Nic {
        mac: some_text(&format!("02fc000000{n:02x}")),
        ips: vec![format!("192.0.2.{n}")],
        ..Nic::default()
    };
    let document = IndexedDevice { nics: (0..100).map(nic).collect(), ..sample_device() }.to_document();
    assert_eq!(exact_values(&document, QueryField::Ip).len(), ADDRESSES_MAX - 1, "the first of all comes twice");
    assert!(exact_values(&document, QueryField::Mac).len() <= ADDRESSES_MAX);
}

#[test]
fn a_ticket_is_found_by_its_number_and_its_words() {
    let document = sample_ticket().to_document();
    assert_eq!((document.title.as_str(), document.subtitle.as_str()), ("Printer on fire", "#42 · open · high"));
    assert_eq!(
        (exact_values(&document, QueryField::Number), document.is_live, document.changed_at),
        (vec!["42"], true, AT)
    );
    assert_eq!(document.url, "/api/psa/tickets?id=tkt_1");
    assert_eq!(field_texts(&document.names), [("subject", "Printer on fire"), ("external_id", "JIRA-7")]);
    let bodies = [
        ("requester.name", "Sam"),
        ("requester.email", "Sam@acme.test"),
        ("category", "Hardware"),
        ("description", "Third floor."),
        ("tags", "printer"),
        ("custom_fields", "North"),
    ];
    assert_eq!(field_texts(&document.bodies), bodies);
    for (field, expected) in [
        (QueryField::Type, "ticket"),
        (QueryField::Status, "open"),
        (QueryField::Priority, "high"),
        (QueryField::Email, "sam@acme.test"),
        (QueryField::Assignee, "usr_1"),
        (QueryField::Number, "42"),
        (QueryField::Tag, "printer"),
    ] {
        assert_eq!(exact_values(&document, field), [expected], "{field:?}");
    }
    for (status, is_live) in
        [("new", true), ("on_hold", true), ("resolved", false), ("closed", false), ("cancelled", false)]
    {
        assert_eq!(
            IndexedTicket { status: status.to_owned(), ..sample_ticket() }.to_document().is_live,
            is_live,
            "{status}"
        );
    }
}

#[test]
fn of_a_long_description_the_beginning_is_found() {
    let row = IndexedTicket { description: Some("ü".repeat(DESCRIPTION_BYTES_MAX)), ..sample_ticket() };
    let document = row.to_document();
    let found = document.bodies.iter().find(|(field, _)| *field == "description");
    assert_eq!(found.map(|(_, text)| text.len()), Some(DESCRIPTION_BYTES_MAX));
}

#[test]
fn people_and_organizations_are_found_by_name() {
    let row = |name: &str, is_active: bool| IndexedUser {
        tenant: TenantId::NONE,
        id: "usr_1".to_owned(),
        email: "anna@acme.test".to_owned(),
        name: name.to_owned(),
        role: "technician".to_owned(),
        is_active,
        updated_at: AT,
    };
    let document = row("Anna", true).to_document();
    assert_eq!((document.title.as_str(), document.subtitle.as_str()), ("Anna", "anna@acme.test · technician"));
    assert_eq!(field_texts(&document.names), [("name", "Anna"), ("email", "anna@acme.test")]);
    assert_eq!(exact_values(&document, QueryField::Email), ["anna@acme.test"]);
    assert_eq!((exact_values(&document, QueryField::Status), document.is_live), (vec!["active"], true));
    let document = row("", false).to_document();
    assert_eq!((document.title.as_str(), document.is_live), ("anna@acme.test", false));
    assert_eq!(exact_values(&document, QueryField::Status), ["disabled"]);

    let (name, slug) = ("Zürich AG".to_owned(), "zurich".to_owned());
    let row = IndexedOrganization {
        tenant: TenantId::NONE,
        id: "org_1".to_owned(),
        slug,
        name,
        external_id: some_text("crm-7"),
        domains: vec!["zurich.test".to_owned()],
        tags: vec!["Gold".to_owned()],
        is_archived: false,
        updated_at: AT,
    };
    let document = row.to_document();
    assert_eq!(document.organization_id.as_deref(), Some("org_1"));
    assert_eq!((document.title.as_str(), document.subtitle.as_str()), ("Zürich AG", "zurich"));
    assert_eq!(field_texts(&document.names), [("name", "Zürich AG"), ("slug", "zurich")]);
    assert_eq!(field_texts(&document.bodies), [("external_id", "crm-7"), ("domains", "zurich.test"), ("tags", "Gold")]);
    assert_eq!((exact_values(&document, QueryField::Tag), document.is_live), (vec!["gold"], true));
    assert!(!IndexedOrganization { is_archived: true, ..row }.to_document().is_live);
    assert_eq!(document.url, "/api/admin/organizations?id=org_1");
}

#[test]
fn a_workflow_tells_what_starts_it() {
    let row = |is_enabled: bool, events: [Option<&str>; 2], next_run_at: Option<Timestamp>| IndexedWorkflow {
        tenant: TenantId::NONE,
        id: "wf_1".to_owned(),
        name: "Escalate".to_owned(),
        is_enabled,
        next_run_at,
        first_event: events[0].map(str::to_owned),
        last_event: events[1].map(str::to_owned),
        is_deleted: false,
        updated_at: AT,
    };
    let (created, updated) = (Some("ticket.created"), Some("ticket.updated"));
    for (row, subtitle) in [
        (row(true, [created, created], None), "enabled · on event ticket.created"),
        (row(true, [created, updated], None), "enabled · on event ticket.created and others"),
        (row(true, [None, None], Some(AT)), "enabled · on schedule"),
        (row(true, [None, None], None), "enabled"),
        (row(false, [None, None], None), "disabled"),
    ] {
        let document = row.to_document();
        assert_eq!(document.subtitle, subtitle);
        assert_eq!((document.is_live, document.title.as_str()), (row.is_enabled, "Escalate"));
        assert_eq!(exact_values(&document, QueryField::Status), [if row.is_enabled { "enabled" } else { "disabled" }]);
    }
}

#[test]
fn software_is_found_as_it_is_spelt() {
    let (name, label) = ("visual studio".to_owned(), "Visual Studio".to_owned());
    let document = IndexedSoftware { tenant: TenantId::NONE, name, label }.to_document();
    assert_eq!((document.id.as_str(), document.title.as_str()), ("visual studio", "Visual Studio"));
    assert_eq!(field_texts(&document.names), [("name", "Visual Studio")]);
    assert_eq!(document.url, "/api/rmm/reports/asset-inventory?software=visual%20studio");
}

#[test]
fn what_a_field_compares_is_of_the_kinds_that_are_asked_for_it() {
    for document in [sample_device().to_document(), sample_ticket().to_document()] {
        for (field, value) in &document.exact {
            assert!(
                kinds_with_field(*field).has_kind(document.kind),
                "{} of a {}: {value}",
                field.name(),
                document.kind.as_str()
            );
        }
    }
}
