//! Machines that have ended, and orders that have failed, leave the list after thirty days, whatever becomes of their provider.

use kernel::base::DAY_MS;

use super::*;

/// Why a provider is not synced any more.
#[derive(Clone, Copy, Debug)]
enum Obstacle {
    Disabled,
    Refused,
    Away,
}

impl Obstacle {
    const ALL: [Obstacle; 3] = [Obstacle::Disabled, Obstacle::Refused, Obstacle::Away];

    async fn apply(self, server: &Server, tenancy: &Tenancy, (stub, token): (&CloudStub, &str), provider: &Value) {
        match self {
            Obstacle::Disabled => {
                let body = with(&provider_body(stub, token), &json!({"enabled": false}));
                let body = without(&body, &["credentials"]);
                server.put(one_provider(provider)).cookie(&tenancy.admin).json(&body).await.is(200);
                return;
            }
            Obstacle::Refused => stub.revoke(token),
            Obstacle::Away => stub.set_away(true),
        }
        server.sync(tenancy, provider).await;
        assert!(server.read_provider(tenancy, provider).await["last_sync_error"].is_string());
    }
}

/// A tenant with a machine that lives, one that is terminated, and an order that has failed; and its token and its provider.
async fn with_ended(server: &Server, stub: &CloudStub, slug: &str) -> (Tenancy, String, Value) {
    let acme = server.tenant(slug).await;
    stub.add(slug, "stays");
    let gone = stub.add(slug, "gone");
    let token = stub.token(slug, Rights::All);
    let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
    server.advance(1_000);
    stub.remove(gone);
    stub.on(Asked::Create, [stub.refusal(403, "forbidden", "no")]);
    server.order(&acme, stub, &provider).await;
    server.sync(&acme, &provider).await;
    for (name, state) in [("gone", "terminated"), ("stays", "running"), ("web-1", "failed")] {
        assert_eq!(server.vm_names(&acme, &format!("state={state}")).await, [name]);
    }
    (acme, token, provider)
}

over_http! {
    async fn what_has_ended_leaves_the_list_after_thirty_days_without_a_sync(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            for obstacle in Obstacle::ALL {
                let what = format!("{} {obstacle:?}", stub.kind());
                let slug = format!("{}-{obstacle:?}", stub.kind()).to_lowercase();
                let (acme, token, provider) = with_ended(&server, stub, &slug).await;
                let (ended_at, kinds) = (server.now(), server.kinds_of(&acme, "vm.").await);
                obstacle.apply(&server, &acme, (stub, &token), &provider).await;
                let terminated = server.list_vms(&acme, "state=terminated").await.remove(0);
                server.advance_to(ended_at.plus_ms(30 * DAY_MS));
                server.forget_ended_machines().await;
                assert_eq!(server.vm_names(&acme, "").await, ["gone", "stays", "web-1"], "{what}");
                server.advance(1_000);
                let since = server.now();
                server.forget_ended_machines().await;
                assert_eq!(server.vm_names(&acme, "").await, ["stays"], "{what}");
                server.get(one_vm(&terminated)).cookie(&acme.admin).await.problem("not_found");
                let changes = server.list_vms(&acme, &format!("updated_since={since}")).await;
                let is_tombstone = |vm: &Value| vm["deleted_at"].is_string() && vm["name"] != "stays";
                assert!(changes.len() == 2 && changes.iter().all(is_tombstone), "{what}: {changes:#?}");
                assert_eq!(server.kinds_of(&acme, "vm.").await, kinds, "{what}: leaving the list is no change of its state");
                stub.set_away(false);
            }
        }
    }

    async fn however_many_have_ended_all_leave_the_list(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (stub, acme) = (&clouds.hetzner, server.tenant("acme").await);
        let (other, _, _) = with_ended(&server, stub, "other").await;
        let ended: Vec<u64> = (0..120).map(|nth| stub.add("acme", &format!("m-{nth}"))).collect();
        stub.add("acme", "stays");
        let provider = server.connect(&acme, stub, "acme").await;
        for id in ended {
            stub.remove(id);
        }
        server.sync(&acme, &provider).await;
        assert_eq!(server.list_vms(&acme, "state=terminated&limit=200").await.len(), 120);
        server.advance(30 * DAY_MS + 1_000);
        server.forget_ended_machines().await;
        for tenancy in [&acme, &other] {
            assert_eq!(server.vm_names(tenancy, "").await, ["stays"]);
        }
    }
}
