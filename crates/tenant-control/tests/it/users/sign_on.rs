//! What signing on makes of somebody: found, linked, made, brought up to date or refused.

use kernel::args;
use kernel::base::Actor;
use tenant_control::features::sso::ProviderId;
use tenant_control::features::users::{SignOn, SignOnOutcome, User, sign_on};

use super::*;

/// A provider of the tenant, as far as a user refers to it.
async fn provider(server: &Server, tenancy: &Tenancy) -> ProviderId {
    let id = ProviderId::new(&server.app.env);
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    let insert = "INSERT INTO sso_providers (tenant_id, id, name, protocol, issuer, client_id, client_secret,
            default_role, role_map, trust_email, enabled, version, created_at, updated_at)
        VALUES ($1, $2, 'Hub', 'oidc', 'https://id.acme.test', 'x', $3, 'viewer', '[]', $4, $5, 1, 1, 1)";
    let secret: &[u8] = b"x";
    let made = db.write(async move |tx| tx.exec(insert, args![id, secret, false, true]).await).await;
    assert_eq!(made.expect("a provider"), 1);
    id
}

fn who(provider: ProviderId, subject: &str, email: &str, role: Role) -> SignOn {
    let (subject, email, name) = (subject.to_owned(), email.to_owned(), Some("Ann Hub".to_owned()));
    SignOn { provider, subject, email, name, role: Some(role) }
}

async fn signed_on(server: &Server, tenancy: &Tenancy, who: SignOn) -> SignOnOutcome {
    let db = server.app.store.tenant_for_test(tenancy.tenant.id, Actor::for_system());
    db.write(async move |tx| sign_on(tx, who).await).await.expect("signing on ends somehow")
}

async fn welcome(server: &Server, tenancy: &Tenancy, who: SignOn) -> User {
    match signed_on(server, tenancy, who).await {
        SignOnOutcome::SignedIn { user, .. } => *user,
        other => panic!("{other:?}"),
    }
}

/// The same as the API shows it.
async fn shown(server: &Server, tenancy: &Tenancy, user: &User) -> Value {
    let shown = read(server, &tenancy.admin, &json!({"id": user.id.to_string()})).await;
    assert_eq!(shown, serde_json::to_value(user).unwrap());
    shown
}

over_http! {
    async fn who_comes_first_is_made_and_found_again(server: Server) {
        let acme = server.tenant("acme").await;
        let hub = provider(&server, &acme).await;
        let made = welcome(&server, &acme, who(hub, "1", "Ann@acme.test", Role::Technician)).await;
        let record = shown(&server, &acme, &made).await;
        assert_eq!(
            (&record["email"], &record["name"], &record["role"]),
            (&json!("ann@acme.test"), &json!("Ann Hub"), &json!("technician"))
        );
        assert_eq!(record["identities"], json!([{"provider": hub.to_string(), "subject": "1"}]));
        assert_eq!(record["last_signed_in_at"], server.now().to_string());
        server.advance(1_000);
        let again = welcome(&server, &acme, who(hub, "1", "ann@acme.test", Role::Technician)).await;
        assert_eq!((again.id, again.version, again.updated_at), (made.id, 1, made.updated_at));
        assert_eq!(again.last_signed_in_at, Some(server.now()));
        shown(&server, &acme, &again).await;
        assert_eq!(server.kinds_of(&acme, "user.").await, ["user.created"]);
    }

    async fn what_the_provider_says_is_in_force_from_then_on(server: Server) {
        let acme = server.tenant("acme").await;
        let hub = provider(&server, &acme).await;
        let made = welcome(&server, &acme, who(hub, "1", "ann@acme.test", Role::Technician)).await;
        let moved = welcome(&server, &acme, who(hub, "1", "anna@acme.test", Role::Viewer)).await;
        assert_eq!((moved.id, moved.email.as_str(), moved.role), (made.id, "anna@acme.test", Role::Viewer));
        assert_eq!((moved.name.as_str(), moved.version), ("Ann Hub", 2));
        shown(&server, &acme, &moved).await;
        let told = server.events_of(&acme, "user.updated").await;
        let changes = json!({
            "email": {"from": "ann@acme.test", "to": "anna@acme.test"},
            "role": {"from": "technician", "to": "viewer"},
        });
        assert_eq!((told.len(), &told[0]["data"]["changes"]), (1, &changes));
        // An address that somebody else has stays theirs.
        make(&server, &acme, "bob@acme.test", "viewer").await;
        let same = welcome(&server, &acme, who(hub, "1", "bob@acme.test", Role::Viewer)).await;
        assert_eq!((same.id, same.email.as_str()), (made.id, "anna@acme.test"));
    }

    async fn a_user_without_an_identity_is_linked_and_one_with_another_refused(server: Server) {
        let acme = server.tenant("acme").await;
        let (hub, other) = (provider(&server, &acme).await, provider(&server, &acme).await);
        let ann = make(&server, &acme, "ann@acme.test", "viewer").await;
        let linked = welcome(&server, &acme, who(hub, "1", "ann@acme.test", Role::Viewer)).await;
        assert_eq!((linked.id.to_string().as_str(), linked.version), (id_of(&ann), 2));
        assert_eq!(linked.name, "Ann", "a name that somebody gave stays");
        shown(&server, &acme, &linked).await;
        let told = server.events_of(&acme, "user.updated").await;
        let to = json!([{"provider": hub.to_string(), "subject": "1"}]);
        assert_eq!(told[0]["data"]["changes"], json!({"identities": {"from": [], "to": to}}));
        for stranger in [who(hub, "2", "ann@acme.test", Role::Admin), who(other, "1", "ann@acme.test", Role::Admin)] {
            let refused = signed_on(&server, &acme, stranger).await;
            assert!(matches!(refused, SignOnOutcome::OtherIdentity), "{refused:?}");
        }
        shown(&server, &acme, &linked).await;
    }

    async fn a_disabled_user_stays_outside(server: Server) {
        let acme = server.tenant("acme").await;
        let hub = provider(&server, &acme).await;
        let ann = make(&server, &acme, "ann@acme.test", "viewer").await;
        for _ in 0..2 {
            server.delete(one(&ann)).cookie(&acme.admin).await.is(204);
            let before = read(&server, &acme.admin, &ann).await;
            server.advance(1_000);
            let refused = signed_on(&server, &acme, who(hub, "1", "ann@acme.test", Role::Admin)).await;
            assert!(matches!(refused, SignOnOutcome::Disabled), "{refused:?}");
            assert_eq!(read(&server, &acme.admin, &ann).await, before, "nothing was written");
            put(&server, &acme.admin, &ann, &but(&ann, "status", "active")).await.is(200);
            welcome(&server, &acme, who(hub, "1", "ann@acme.test", Role::Viewer)).await;
        }
    }

    async fn no_rule_of_a_provider_takes_the_last_admin_or_the_platforms_office(server: Server) {
        let acme = server.tenant("acme").await;
        let hub = provider(&server, &acme).await;
        let own = me(&server, &acme.admin).await;
        let email = own["email"].as_str().unwrap();
        let kept = welcome(&server, &acme, who(hub, "1", email, Role::Viewer)).await;
        assert_eq!(kept.role, Role::Admin, "the last one");
        let cookie = operator(&server, &acme).await;
        let op = me(&server, &cookie).await;
        let refused = signed_on(&server, &acme, who(hub, "2", op["email"].as_str().unwrap(), Role::Viewer)).await;
        assert!(matches!(refused, SignOnOutcome::OtherIdentity), "an address is no way into the office: {refused:?}");
        make(&server, &acme, "other@acme.test", "admin").await;
        let demoted = welcome(&server, &acme, who(hub, "1", email, Role::Viewer)).await;
        assert_eq!(demoted.role, Role::Viewer);
    }
}
