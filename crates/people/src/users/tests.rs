//! Tests of the rules.

use kernel::base::{RecordId, SessionId};
use serde_json::Value;

use super::*;

fn user_with(role: Role, status: UserStatus) -> User {
    User {
        id: UserId::NONE,
        email: "ann@acme.test".to_owned(),
        name: "Ann".to_owned(),
        role,
        status,
        platform_operator: false,
        last_signed_in_at: None,
        identities: Vec::new(),
        version: 1,
        created_at: Timestamp::from_millis(0),
        updated_at: Timestamp::from_millis(0),
    }
}

/// The rights of a key, or of the user themselves.
fn rights_with(words: &[&str], is_self: bool) -> Rights {
    let session_ref = CredentialRef::Session { user: UserId::NONE, session: SessionId::NONE };
    Rights {
        credential: is_self.then_some(session_ref),
        scopes: Scopes::parse(words.iter().copied()).unwrap_or_default(),
        allowed_cidrs: Vec::new(),
        expires_at: None,
    }
}

#[test]
fn nobody_gives_or_touches_more_than_they_hold() {
    let (all, few) = (rights_with(&["*"], false), rights_with(&["users:*", "tickets:read"], false));
    for role in Role::ALL {
        assert!(check_grant(&all, role).is_ok() && check_grant(&few, role).is_err(), "{}", role.as_str());
        assert!(check_reach(&all, &user_with(role, UserStatus::Disabled)).is_ok());
        assert!(check_reach(&few, &user_with(role, UserStatus::Disabled)).is_err());
    }
    let operator = User { platform_operator: true, ..user_with(Role::Viewer, UserStatus::Active) };
    assert!(check_reach(&all, &operator).is_err(), "a star is not the platform's own figures");
    assert!(check_reach(&rights_with(&["*", "platform:read"], false), &operator).is_ok());
}

#[test]
fn nobody_disables_or_demotes_themselves() {
    let (admin, viewer) = (user_with(Role::Admin, UserStatus::Active), user_with(Role::Viewer, UserStatus::Active));
    let disabled = user_with(Role::Admin, UserStatus::Disabled);
    for new in [&viewer, &disabled] {
        assert!(check_self(&rights_with(&["*"], true), &admin, new).is_err());
        assert!(check_self(&rights_with(&["*"], false), &admin, new).is_ok());
    }
    let renamed = User { email: "ann@other.test".to_owned(), name: "Anna".to_owned(), ..admin.clone() };
    assert!(check_self(&rights_with(&["*"], true), &admin, &renamed).is_ok());
}

#[test]
fn the_last_active_admin_stays_one() {
    let (admin, viewer) = (user_with(Role::Admin, UserStatus::Active), user_with(Role::Viewer, UserStatus::Active));
    let disabled = user_with(Role::Admin, UserStatus::Disabled);
    for new in [&viewer, &disabled] {
        assert!(check_admin_left(&admin, new, false).is_err());
        assert!(check_admin_left(&admin, new, true).is_ok());
    }
    for (old, new) in [(&admin, &admin), (&viewer, &admin), (&disabled, &viewer), (&disabled, &admin)] {
        assert!(check_admin_left(old, new, false).is_ok());
    }
}

#[test]
fn an_address_is_folded_and_a_name_is_made_of_it() {
    assert_eq!(fold_email(" Ann@ACME.test\n").as_deref(), Ok("ann@acme.test"));
    for wrong in ["", "ann", "ann@", "@acme.test", "a@b@c", "a b@c", &format!("{}@b", "a".repeat(253))] {
        assert!(fold_email(wrong).is_err(), "{wrong}");
    }
    assert_eq!(fold_email("ΝΙΚΟΣ@acme.test"), fold_email("νικος@acme.test"));
    assert_eq!(fold_email("jose\u{301}@acme.test"), fold_email("jos\u{e9}@acme.test"));
    assert_eq!(fold_email("ÄNN@MÜNCHEN.test").as_deref(), Ok("änn@münchen.test"));
    // The lower case of these is that of another letter, or has two letters.
    for wrong in [
        "\u{212a}en@acme.test",
        "\u{130}da@acme.test",
        "\u{2126}@acme.test",
        "ken@\u{212a}.test",
        "\u{17f}@acme.test",
        "\u{fb01}@acme.test",
        "ann@\u{ff41}cme.test",
    ] {
        assert!(fold_email(wrong).is_err(), "{wrong}");
    }
    assert_eq!(name_from_email("ann@acme.test"), "ann");
    assert_eq!(name_from_email(&format!("{}@b", "a".repeat(250))).len(), NAME_CHARS_MAX);
}

#[test]
fn what_the_server_observes_is_no_change() {
    let old = user_with(Role::Admin, UserStatus::Active);
    let signed_in = User { last_signed_in_at: Some(Timestamp::from_millis(9)), version: 9, ..old.clone() };
    assert!(diff_users(&old, &signed_in).is_ok_and(|changes| changes.0.is_empty()));
    let changed_role = diff_users(&old, &User { role: Role::Viewer, ..old.clone() }).unwrap_or_default();
    assert_eq!(changed_role.0.keys().collect::<Vec<_>>(), ["role"]);
    assert_eq!(
        (&changed_role.0["role"].from, &changed_role.0["role"].to),
        (&Value::from("admin"), &Value::from("viewer"))
    );
}
