//! Lists of machines: filters, pages, counts, and what has changed.

use super::*;
use crate::tickets;

/// Machines of two providers: `web-1` and `web-2` run at Hetzner, `db-1` is off; `web-3` runs at DigitalOcean.
async fn fleet(server: &Server, tenancy: &Tenancy, hetzner: &CloudStub, digitalocean: &CloudStub) -> [Value; 2] {
    for (stub, name, tags) in [
        (hetzner, "web-1", json!({"env": "prod", "role": "web"})),
        (hetzner, "web-2", json!({"env": "test"})),
        (hetzner, "db-1", json!({"role": "db"})),
        (digitalocean, "web-3", json!(["env:prod", "tenant-control:organization:globex"])),
    ] {
        let id = stub.add("acme", name);
        stub.change(id, |machine| {
            machine.tags = tags;
            if name == "db-1" {
                "off".clone_into(&mut machine.state);
                "nbg1".clone_into(&mut machine.region);
            }
        });
    }
    let token = hetzner.token("acme", Rights::All);
    let body = with(&provider_body(hetzner, &token), &json!({"regions": ["fsn1", "nbg1"]}));
    [server.connect_by(tenancy, &body).await, server.connect(tenancy, digitalocean, "acme").await]
}

over_http! {
    async fn filters_apply_together_and_take_lists(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let globex = tickets::organization(&server, &acme, "globex").await;
        let [first, second] = fleet(&server, &acme, &clouds.hetzner, &clouds.digitalocean).await;
        let (first, second) = (id_of(&first), id_of(&second));
        for (query, expected) in [
            (String::new(), &["db-1", "web-1", "web-2", "web-3"][..]),
            (format!("provider_id={first}"), &["db-1", "web-1", "web-2"]),
            (format!("provider_id={second}"), &["web-3"]),
            (format!("provider_id={first},{second}"), &["db-1", "web-1", "web-2", "web-3"]),
            (format!("provider_id={first}&provider_id={second}"), &["db-1", "web-1", "web-2", "web-3"]),
            ("provider_id=prv_01jd8z6v2mfkpb7h3q9xw5t4ra".to_owned(), &[]),
            ("region=fsn1".to_owned(), &["web-1", "web-2"]),
            ("region=nbg1,fra1".to_owned(), &["db-1", "web-3"]),
            ("region=hel1".to_owned(), &[]),
            ("state=stopped".to_owned(), &["db-1"]),
            ("state=stopped,running".to_owned(), &["db-1", "web-1", "web-2", "web-3"]),
            ("state=terminated".to_owned(), &[]),
            ("tag=env".to_owned(), &["web-1", "web-2", "web-3"]),
            ("tag=env:prod".to_owned(), &["web-1", "web-3"]),
            ("tag=env:test,role".to_owned(), &["db-1", "web-1", "web-2"]),
            ("tag=env:pro".to_owned(), &[]),
            ("tag=tenant-control:organization".to_owned(), &["web-3"]),
            ("tag=tenant-control:organization:globex".to_owned(), &["web-3"]),
            (format!("organization_id={globex}"), &["web-3"]),
            ("q=web".to_owned(), &["web-1", "web-2", "web-3"]),
            ("q=we+2".to_owned(), &["web-2"]),
            ("q=WEB-1".to_owned(), &["web-1"]),
            ("q=eb".to_owned(), &[]),
            (format!("q=web&tag=env:prod&provider_id={first}&state=running&region=fsn1"), &["web-1"]),
            (format!("organization_id={globex}&provider_id={first}"), &[]),
        ] {
            assert_eq!(server.vm_names(&acme, &query).await, expected, "{query}");
            assert_eq!(server.vm_names(&acme, &format!("{query}&limit=1")).await, expected, "{query}, one on a page");
            assert_eq!(server.vm_names(&other, &query).await, Vec::<String>::new(), "{query}, of another tenant");
        }
    }

    async fn a_filter_is_applied_or_refused(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        fleet(&server, &acme, &clouds.hetzner, &clouds.digitalocean).await;
        let get = async |query: &str| server.get(format!("{VMS}?{query}")).cookie(&acme.admin).await;
        for query in ["state=sleeping", "state=running,sleeping", "region=FSN1", "region=", "tag=", "q=", "limit=0", "limit=201", "updated_since=yesterday",
            "view=list", "view=summary&state=running", "state=running&id=vm_01jd8z6v2mfkpb7h3q9xw5t4ra"]
        {
            get(query).await.problem("invalid_parameter");
        }
        for query in ["name=web-1", "organization=globex", "sort=name"] {
            get(query).await.problem("unknown_parameter");
        }
        let cursor = get("limit=1&state=running").await.ok(200)["next_cursor"].as_str().unwrap().to_owned();
        for query in ["limit=1", "limit=1&state=stopped", "limit=1&state=running&q=web", "limit=1&updated_since=2000-01-01T00:00:00Z"] {
            get(&format!("{query}&cursor={cursor}")).await.problem("invalid_cursor");
        }
        let stolen = server.get(format!("{VMS}?limit=1&state=running&cursor={cursor}")).cookie(&other.admin).await;
        stolen.problem("invalid_cursor");
    }

    async fn pages_are_newest_first_and_lose_nobody(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        let provider = server.connect(&acme, stub, "acme").await;
        for number in 0..7 {
            server.advance(1_000);
            stub.add("acme", &format!("m-{number}"));
            server.sync(&acme, &provider).await;
        }
        let all: Vec<String> = (0..7).rev().map(|number| format!("m-{number}")).collect();
        for limit in [1, 2, 3, 7, 200] {
            let rows = server.list_vms(&acme, &format!("limit={limit}")).await;
            let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
            assert_eq!(names, all, "{limit}");
        }
        let first = server.get(format!("{VMS}?limit=3")).cookie(&acme.admin).await;
        assert!(first.header("link").contains("rel=\"next\""), "{:?}", first.headers);
        // One that comes while somebody pages is not in the way.
        stub.add("acme", "late");
        server.sync(&acme, &provider).await;
        let cursor = first.json()["next_cursor"].as_str().unwrap().to_owned();
        let rest = server.list_vms(&acme, &format!("limit=200&cursor={cursor}")).await;
        let names: Vec<&str> = rest.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names, &all[3..]);
    }

    async fn a_summary_counts_by_state_provider_region_size_and_organization(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        let globex = tickets::organization(&server, &acme, "globex").await;
        let [first, second] = fleet(&server, &acme, &clouds.hetzner, &clouds.digitalocean).await;
        let read = async |tenancy: &Tenancy| server.get(format!("{VMS}?view=summary")).cookie(&tenancy.admin).await.ok(200);
        let counted = |pairs: &[(Value, i64)]| -> Value {
            pairs.iter().map(|(value, count)| json!({"value": value, "count": count})).collect()
        };
        assert_eq!(
            read(&acme).await,
            json!({
                "state": counted(&[(json!("running"), 3), (json!("stopped"), 1)]),
                "provider": counted(&[(first["id"].clone(), 3), (second["id"].clone(), 1)]),
                "region": counted(&[(json!("fsn1"), 2), (json!("fra1"), 1), (json!("nbg1"), 1)]),
                "size": counted(&[(json!("cx22"), 3), (json!("s-1vcpu-1gb"), 1)]),
                "organization": counted(&[(json!(null), 3), (json!(globex), 1)]),
            })
        );
        // A machine that has ended counts as a state, and nowhere else.
        let ended = clouds.digitalocean.machines()[0].id;
        clouds.digitalocean.remove(ended);
        server.sync(&acme, &second).await;
        let summary = read(&acme).await;
        assert_eq!(summary["state"], counted(&[(json!("running"), 2), (json!("stopped"), 1), (json!("terminated"), 1)]));
        assert_eq!(summary["provider"], counted(&[(first["id"].clone(), 3)]));
        assert_eq!(summary["region"], counted(&[(json!("fsn1"), 2), (json!("nbg1"), 1)]));
        server.delete(one_provider(&first)).cookie(&acme.admin).await.is(204);
        assert_eq!(read(&acme).await["state"], counted(&[(json!("terminated"), 1)]));
        assert_eq!(read(&other).await, json!({"state": [], "provider": [], "region": [], "size": [], "organization": []}));
    }

    async fn a_reader_of_changes_misses_nothing_at_any_page_size(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let stub = &clouds.hetzner;
        let ids: Vec<u64> = (0..9).map(|number| stub.add("acme", &format!("m-{number}"))).collect();
        let provider = server.connect(&acme, stub, "acme").await;
        server.advance(1_000);
        let since = server.now();
        for id in ids.iter().step_by(2) {
            stub.change(*id, |machine| "off".clone_into(&mut machine.state));
        }
        stub.remove(ids[1]);
        server.sync(&acme, &provider).await;
        let changed = server.list_vms(&acme, &format!("updated_since={since}")).await;
        let mut names: Vec<&str> = changed.iter().map(|row| row["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["m-0", "m-1", "m-2", "m-4", "m-6", "m-8"]);
        for limit in [1, 2, 5, 6, 200] {
            assert_eq!(server.list_vms(&acme, &format!("updated_since={since}&limit={limit}")).await, changed, "{limit}");
        }
        let off = server.list_vms(&acme, &format!("updated_since={since}&state=stopped&limit=2")).await;
        assert_eq!(off.len(), 5);
        // What changes again comes behind what was read.
        let cursor = server.get(format!("{VMS}?updated_since={since}&limit=2")).cookie(&acme.admin).await.ok(200)["next_cursor"].clone();
        let seen = changed[0]["external_id"].as_str().unwrap().parse().unwrap();
        server.advance(1_000);
        stub.change(seen, |machine| "again".clone_into(&mut machine.name));
        server.sync(&acme, &provider).await;
        let rest = server.get(format!("{VMS}?updated_since={since}&limit=200&cursor={}", cursor.as_str().unwrap())).cookie(&acme.admin).await.ok(200);
        let rest = rest["data"].as_array().unwrap().clone();
        assert_eq!(rest.last().unwrap()["name"], "again");
        assert_eq!(rest.len(), changed.len() - 2 + 1);
        // Those that leave the list come as tombstones.
        server.advance(1_000);
        let left = server.now();
        server.delete(one_provider(&provider)).cookie(&acme.admin).await.is(204);
        let tombstones = server.list_vms(&acme, &format!("updated_since={left}&limit=4")).await;
        assert_eq!(tombstones.len(), 9);
        assert!(tombstones.iter().all(|row| row["deleted_at"] == left.to_string() && row["updated_at"] == left.to_string()));
    }
}
