//! What a cloud offers, asked of it with a provider's credentials.

use kernel::base::MINUTE_MS;

use super::*;

async fn entries(server: &Server, tenancy: &Tenancy, provider: &Value, query: &str) -> Vec<Value> {
    let (mut rows, mut more) = (Vec::new(), String::new());
    loop {
        let target = format!("{}&{query}{more}", one_provider(provider));
        let page = server.get(target).cookie(&tenancy.admin).await.ok(200);
        rows.extend(page["data"].as_array().unwrap().iter().cloned());
        assert_eq!(page["has_more"], page["next_cursor"].is_string(), "{query}");
        match page["next_cursor"].as_str() {
            Some(cursor) => more = format!("&cursor={cursor}"),
            None => return rows,
        }
    }
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(id_of).collect()
}

over_http! {
    async fn regions_sizes_and_images_are_lists_like_any_other(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for (stub, regions, sizes, images) in [
            (&clouds.hetzner, &["fsn1", "hel1", "nbg1"][..], &["cpx11", "cx22", "cx32"][..], &["debian-13", "ubuntu-26.04"][..]),
            (&clouds.digitalocean, &["ams3", "fra1", "nyc3"], &["s-1vcpu-1gb", "s-2vcpu-4gb"], &["debian-13-x64", "ubuntu-26-04-x64"]),
        ] {
            let provider = server.connect(&acme, stub, "acme").await;
            stub.set_page_max(2);
            for limit in [1, 2, 200] {
                for (catalog, expected) in [("regions", regions), ("sizes", sizes), ("images", images)] {
                    let rows = entries(&server, &acme, &provider, &format!("catalog={catalog}&limit={limit}")).await;
                    assert_eq!(ids(&rows), expected, "{catalog} {limit}");
                    let is_named = |row: &Value| row["name"].as_str().is_some_and(|name| !name.is_empty());
                    assert!(rows.iter().all(is_named), "{rows:?}");
                }
            }
            let rows = entries(&server, &acme, &provider, "catalog=sizes").await;
            for field in ["vcpus", "memory_bytes", "disk_bytes"] {
                assert!(rows[0][field].is_i64(), "{field} in {rows:?}");
            }
            stub.set_page_max(usize::MAX);
        }
    }

    async fn a_region_has_sizes_of_its_own(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for (stub, with_sizes, without_sizes) in [(&clouds.hetzner, "nbg1", "hel1"), (&clouds.digitalocean, "ams3", "nyc3")] {
            let provider = server.connect(&acme, stub, "acme").await;
            let of = async |region: &str| entries(&server, &acme, &provider, &format!("catalog=sizes&region={region}")).await;
            assert!(of(with_sizes).await.len() > 1);
            assert_eq!(of(without_sizes).await, Vec::<Value>::new());
        }
    }

    async fn what_cannot_be_asked_is_refused(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        let provider = server.connect(&acme, &clouds.hetzner, "acme").await;
        let other = server.connect(&acme, &clouds.digitalocean, "acme").await;
        let get = async |provider: &Value, query: &str| {
            server.get(format!("{}&{query}", one_provider(provider))).cookie(&acme.admin).await
        };
        for query in ["catalog=machines", "catalog=sizes&region=FSN1", "catalog=sizes&region=a.b", "catalog=sizes&region=zz1", "catalog=images&region=zz1", "catalog=sizes&limit=0", "region=fsn1"] {
            get(&provider, query).await.problem("invalid_parameter");
        }
        get(&provider, "catalog=sizes&state=running").await.problem("unknown_parameter");
        server.get(format!("{PROVIDERS}?catalog=sizes")).cookie(&acme.admin).await.problem("missing_parameter");
        let first = get(&provider, "catalog=sizes&limit=1").await.ok(200);
        let cursor = first["next_cursor"].as_str().unwrap();
        for (provider, query) in [(&provider, "catalog=images"), (&provider, "catalog=sizes&region=nbg1"), (&other, "catalog=sizes")] {
            get(provider, &format!("{query}&limit=1&cursor={cursor}")).await.problem("invalid_cursor");
        }
    }

    async fn a_cloud_that_does_not_answer_is_told_from_one_that_refuses(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for stub in clouds.both() {
            let token = stub.token("acme", Rights::All);
            let provider = server.connect_by(&acme, &provider_body(stub, &token)).await;
            let target = format!("{}&catalog=images", one_provider(&provider));
            stub.set_away(true);
            server.get(&target).cookie(&acme.admin).await.problem("unavailable");
            stub.set_away(false);
            stub.on(Asked::Images, [stub.rate_limited(server.now().plus_ms(30_000))]);
            let busy = server.get(&target).cookie(&acme.admin).await;
            busy.problem("unavailable");
            assert_eq!(busy.header("retry-after"), "30");
            stub.revoke(&token);
            let refused = server.get(&target).cookie(&acme.admin).await;
            let problem = refused.problem("conflict");
            assert!(!problem.to_string().contains(&token), "{problem}");
        }
    }

    async fn a_catalog_is_asked_for_once_in_a_few_minutes(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let acme = server.tenant("acme").await;
        for (stub, region) in [(&clouds.hetzner, "nbg1"), (&clouds.digitalocean, "ams3")] {
            let provider = server.connect(&acme, stub, "acme").await;
            for (catalog, asked) in [("regions", Asked::Regions), ("sizes", Asked::Sizes), ("images", Asked::Images)] {
                let before = stub.count(asked);
                let query = format!("catalog={catalog}");
                let first = entries(&server, &acme, &provider, &query).await;
                for again in [format!("{query}&limit=1"), format!("{query}&region={}", stub.region())] {
                    assert_eq!(entries(&server, &acme, &provider, &again).await, first, "{again}");
                }
                assert_eq!(stub.count(asked), before + 1, "every page of {catalog} is of one answer");
                entries(&server, &acme, &provider, &format!("{query}&region={region}")).await;
                assert_eq!(stub.count(asked), before + 2, "another region has {catalog} of its own");
                server.advance(6 * MINUTE_MS);
                entries(&server, &acme, &provider, &query).await;
                assert_eq!(stub.count(asked), before + 3, "{catalog} may have changed");
            }
        }
    }

    async fn a_catalog_is_kept_for_one_provider_and_its_credentials(setup: Setup) {
        let (server, clouds) = open(setup).await;
        let (acme, other) = (server.tenant("acme").await, server.tenant("other").await);
        for stub in clouds.both() {
            let asked_with = |token: &str| stub.calls(Asked::Sizes).iter().filter(|call| call.token == token).count();
            let mut providers = Vec::new();
            for tenancy in [&acme, &acme, &other] {
                let token = stub.token("acme", Rights::All);
                providers.push((tenancy, server.connect_by(tenancy, &provider_body(stub, &token)).await, token));
            }
            for (tenancy, provider, token) in providers.iter().chain(&providers) {
                entries(&server, tenancy, provider, "catalog=sizes").await;
                assert_eq!(asked_with(token), 1, "each is asked for with its own credentials, once");
            }
            let (_, provider, _) = &providers[0];
            let next = stub.token("acme", Rights::All);
            put(&server, &acme, provider, &provider_body(stub, &next)).await.is(200);
            entries(&server, &acme, provider, "catalog=sizes").await;
            assert_eq!(asked_with(&next), 1, "with new credentials it is asked for again");
            put(&server, &acme, provider, &provider_body(stub, "a-token-that-is-refused")).await.is(200);
            let sizes = || server.get(format!("{}&catalog=sizes", one_provider(provider))).cookie(&acme.admin);
            sizes().await.problem("conflict");
            server.delete(one_provider(provider)).cookie(&acme.admin).await.is(204);
            sizes().await.problem("not_found");
        }
    }
}
