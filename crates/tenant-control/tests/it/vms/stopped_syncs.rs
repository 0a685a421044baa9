//! Syncs that cannot end as they began: of a provider that is changed meanwhile, and of a cloud whose list never ends.

use super::*;
use crate::support::receiver::Gate;

/// What somebody does to a provider while it is synced.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ProviderChange {
    Disable,
    Replace,
    Delete,
    /// To the first region of the stub alone.
    RemoveRegion,
    /// To both regions.
    AddRegion,
}

/// Changes after which nothing that was read may be saved.
const CHANGES: [ProviderChange; 3] = [ProviderChange::Disable, ProviderChange::Replace, ProviderChange::Delete];

impl ProviderChange {
    async fn apply(self, server: &Server, tenancy: &Tenancy, stub: &CloudStub, provider: &Value) {
        // The new credentials are of an account without machines.
        let body = provider_body(stub, &stub.token("elsewhere", Rights::All));
        match self {
            ProviderChange::Disable => put(server, tenancy, provider, &set_enabled(&body, false)).await,
            ProviderChange::Replace => put(server, tenancy, provider, &body).await,
            ProviderChange::Delete => {
                server.delete(one_provider(provider)).cookie(&tenancy.admin).await.is(204);
            }
            ProviderChange::RemoveRegion => put(server, tenancy, provider, &without(&body, &["credentials"])).await,
            ProviderChange::AddRegion => {
                let both = with(&body, &json!({"regions": [stub.region(), other_region(stub)]}));
                put(server, tenancy, provider, &without(&both, &["credentials"])).await;
            }
        }
    }
}

fn other_region(stub: &CloudStub) -> &'static str {
    if stub.kind() == "hetzner" { "nbg1" } else { "nyc3" }
}

/// A machine in the other region.
fn add_elsewhere(stub: &CloudStub, account: &str, name: &str) -> u64 {
    let id = stub.add(account, name);
    stub.change(id, |machine| other_region(stub).clone_into(&mut machine.region));
    id
}

fn set_enabled(body: &Value, enabled: bool) -> Value {
    without(&with(body, &json!({"enabled": enabled})), &["credentials"])
}

async fn put(server: &Server, tenancy: &Tenancy, provider: &Value, body: &Value) {
    server.put(one_provider(provider)).cookie(&tenancy.admin).json(body).await.is(200);
}

/// Syncs, and changes the provider while an answer of this kind, the nth from now, is on its way.
async fn change_during(
    (server, stub): (&Server, &CloudStub),
    (tenancy, provider): (&Tenancy, &Value),
    change: ProviderChange,
    (asked, nth): (Asked, usize),
) {
    let (gate, before) = (Gate::closed(), stub.count(asked));
    let mut script = vec![Fault::None; nth - 1];
    script.push(Fault::HeldAnswer(gate.clone()));
    stub.on(asked, script);
    server.tell_provider(tenancy, provider, "sync").await.is(202);
    let worker = server.cloud_worker();
    let working = tokio::spawn(async move { worker.run_due().await });
    stub.wait_for(asked, before + nth).await;
    change.apply(server, tenancy, stub, provider).await;
    // Another node does all that follows from it before the answer comes.
    server.advance(1);
    server.cloud_work().await;
    gate.open();
    working.await.expect("no panic").expect("the worker works");
    server.cloud_work().await;
}

/// The machines that were ever shown, those that have left the list with their provider too: their names and states.
async fn shown(server: &Server, tenancy: &Tenancy) -> Vec<(String, String)> {
    let vms = server.list_vms(tenancy, "updated_since=2000-01-01T00:00:00Z").await;
    let text = |vm: &Value, field: &str| vm[field].as_str().expect("a text").to_owned();
    let mut shown: Vec<_> = vms.iter().map(|vm| (text(vm, "name"), text(vm, "state"))).collect();
    shown.sort_unstable();
    shown
}

fn running(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), "running".to_owned())).collect()
}

over_http! {
    async fn a_sync_of_a_provider_that_is_changed_meanwhile_saves_nothing_more(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            stub.set_page_max(1);
            for (change, pages) in CHANGES.into_iter().flat_map(|change| [(change, 1), (change, 2)]) {
                let acme = server.tenant(&format!("{}-{change:?}-{pages}", stub.kind()).to_lowercase()).await;
                let account = acme.tenant.slug.as_str();
                let gone = stub.add(account, "gone");
                stub.add(account, "known");
                let token = stub.token(account, Rights::All);
                let body = provider_body(stub, &token);
                let provider = server.connect_by(&acme, &body).await;
                server.advance(1_000);
                stub.remove(gone);
                stub.add(account, "new-1");
                stub.add(account, "new-2");
                let lists = || stub.calls(Asked::List).iter().filter(|call| call.token == token).count();
                let (before, looks) = (lists(), stub.count(Asked::Get));
                change_during((&server, stub), (&acme, &provider), change, (Asked::List, pages)).await;
                assert_eq!(lists(), before + pages, "{change:?}: no page more is asked for");
                assert_eq!(stub.count(Asked::Get), looks, "{change:?}: nobody is looked for");
                assert_eq!(shown(&server, &acme).await, running(&["gone", "known"]), "{change:?} on page {pages}");
                assert!(server.events_of(&acme, "vm.").await.is_empty());
                if change == ProviderChange::Delete {
                    assert_eq!(server.list_vms(&acme, "").await, Vec::<Value>::new());
                    continue;
                }
                // With the credentials that know them it goes on.
                put(&server, &acme, &provider, &body).await;
                server.cloud_work().await;
                assert_eq!(server.vm_names(&acme, "state=running").await, ["known", "new-1", "new-2"], "{change:?}");
                assert_eq!(server.vm_names(&acme, "state=terminated").await, ["gone"], "{change:?}");
            }
        }
    }

    async fn a_look_for_a_provider_that_is_changed_meanwhile_takes_nothing_for_gone(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            for change in CHANGES {
                let acme = server.tenant(&format!("{}-{change:?}", stub.kind()).to_lowercase()).await;
                let account = acme.tenant.slug.as_str();
                let gone = stub.add(account, "gone");
                stub.add(account, "known");
                let provider = server.connect(&acme, stub, account).await;
                stub.remove(gone);
                change_during((&server, stub), (&acme, &provider), change, (Asked::Get, 1)).await;
                assert_eq!(shown(&server, &acme).await, running(&["gone", "known"]), "{change:?}");
                assert!(server.events_of(&acme, "vm.").await.is_empty());
            }
        }
    }

    async fn a_region_that_is_removed_during_a_sync_leaves_no_machine(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            stub.set_page_max(1);
            for (nth, asked) in [(Asked::List, 1), (Asked::List, 2), (Asked::Get, 1)].into_iter().enumerate() {
                let acme = server.tenant(&format!("{}-{nth}", stub.kind())).await;
                let account = acme.tenant.slug.as_str();
                stub.add(account, "kept");
                let elsewhere = add_elsewhere(stub, account, "elsewhere");
                let body = provider_body(stub, &stub.token(account, Rights::All));
                let both = with(&body, &json!({"regions": [stub.region(), other_region(stub)]}));
                let provider = server.connect_by(&acme, &both).await;
                assert_eq!(server.vm_names(&acme, "").await, ["elsewhere", "kept"]);
                server.advance(1_000);
                if asked.0 == Asked::Get {
                    stub.change(elsewhere, |machine| machine.is_hidden = true);
                } else {
                    add_elsewhere(stub, account, "new-elsewhere");
                }
                change_during((&server, stub), (&acme, &provider), ProviderChange::RemoveRegion, asked).await;
                server.cloud_work_for(20 * MINUTE_MS).await;
                assert_eq!(server.vm_names(&acme, "").await, ["kept"], "{asked:?}");
                server.delete(one_provider(&provider)).cookie(&acme.admin).await.is(204);
                assert_eq!(server.vm_names(&acme, "").await, Vec::<String>::new(), "{asked:?}");
            }
        }
    }

    async fn a_region_that_is_added_during_a_sync_is_synced_after_it(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for stub in clouds.both() {
            stub.set_page_max(1);
            let acme = server.tenant(stub.kind()).await;
            let account = acme.tenant.slug.as_str();
            for name in ["gone", "kept"] {
                stub.add(account, name);
            }
            add_elsewhere(stub, account, "elsewhere");
            let provider = server.connect(&acme, stub, account).await;
            server.advance(1_000);
            stub.remove(stub.machines().iter().find(|machine| machine.name == "gone").expect("a machine").id);
            change_during((&server, stub), (&acme, &provider), ProviderChange::AddRegion, (Asked::List, 1)).await;
            server.cloud_work_for(MINUTE_MS).await;
            assert_eq!(server.vm_names(&acme, "state=running").await, ["elsewhere", "kept"]);
            assert_eq!(server.vm_names(&acme, "state=terminated").await, ["gone"]);
            assert_eq!(server.read_provider(&acme, &provider).await["last_sync_error"], json!(null));
        }
    }

    async fn a_cloud_whose_list_never_ends_stops_its_own_sync_alone(setup: Setup) {
        let (server, clouds) = open(setup).await;
        for (stub, other) in [(&clouds.hetzner, &clouds.digitalocean), (&clouds.digitalocean, &clouds.hetzner)] {
            let acme = server.tenant(stub.kind()).await;
            let account = acme.tenant.slug.as_str();
            stub.add(account, "known");
            let provider = server.connect(&acme, stub, account).await;
            let neighbour = server.connect(&acme, other, account).await;
            server.advance(1_000);
            other.add(account, "new");
            stub.set_page_max(0);
            let before = stub.count(Asked::List);
            for provider in [&provider, &neighbour] {
                server.tell_provider(&acme, provider, "sync").await.is(202);
            }
            server.cloud_work().await;
            let failed = server.read_provider(&acme, &provider).await;
            let error = failed["last_sync_error"].as_str().unwrap_or_default();
            assert!(error.contains("pages without machines"), "{failed:#}");
            assert_eq!((&failed["status"], &failed["last_sync_at"]), (&json!("active"), &provider["last_sync_at"]));
            assert!(stub.count(Asked::List) - before < 20, "{} pages", stub.count(Asked::List) - before);
            assert_eq!(server.vm_names(&acme, "state=running").await, ["known", "new"]);
            let synced = server.read_provider(&acme, &neighbour).await;
            assert_eq!((&synced["last_sync_error"], &synced["last_sync_at"]), (&json!(null), &json!(server.now().to_string())));
            stub.set_page_max(usize::MAX);
            server.cloud_work_for(2 * MINUTE_MS).await;
            assert_eq!(server.read_provider(&acme, &provider).await["last_sync_error"], json!(null));
        }
    }
}
