//! How many lanes one look leases: never more than it asked for, whatever PostgreSQL knows of the table.

use std::collections::BTreeSet;

use kernel::args;
use kernel::base::TenantId;
use kernel::jobs::lanes;
use kernel::store::Purpose;

use super::open;
use crate::support::{Server, over_http};

const KIND: &str = "test";
const LANES: usize = 200;
const LIMIT: usize = 8;

const INSERT: &str = "INSERT INTO lanes (kind, tenant_id, key, token, due_at) VALUES ($1, $2, $3, 0, $4)";

async fn make_lanes(server: &Server, first: usize, count: usize) {
    make_lanes_of(server, TenantId::new(&server.app.env), first, count).await;
}

async fn make_lanes_of(server: &Server, tenant: TenantId, first: usize, count: usize) {
    let now = server.now();
    let db = server.app.store.system(Purpose::Cli);
    let made = db.write(async move |tx| {
        for number in first..first + count {
            tx.exec(INSERT, args![KIND, tenant, format!("lane{number:04}"), now]).await?;
        }
        Ok(())
    });
    made.await.expect("lanes");
}

async fn lease(server: &Server) -> Vec<String> {
    let leased = lanes::lease_due_lanes(&server.app, KIND, LIMIT).await.expect("leases");
    leased.into_iter().map(|lane| lane.key).collect()
}

over_http! {
    async fn a_look_leases_no_more_lanes_than_it_asked_for(setup: Setup) {
        let server = open(setup).await;
        make_lanes(&server, 0, 3).await;
        assert_eq!(lease(&server).await.len(), 3, "a small table");
        make_lanes(&server, 3, LANES - 3).await;
        let mut all = BTreeSet::new();
        while all.len() < LANES - 3 {
            let leased = lease(&server).await;
            assert!((1..=LIMIT).contains(&leased.len()), "{} lanes for a limit of {LIMIT}", leased.len());
            for key in leased {
                assert!(all.insert(key), "leased twice");
            }
            if all.len() == 5 * LIMIT {
                let db = server.app.store.system(Purpose::Cli);
                db.write(async |tx| tx.exec("ANALYZE lanes", args![]).await).await.expect("statistics");
            }
        }
        assert!(lease(&server).await.is_empty());
    }

    async fn a_tenant_with_many_lanes_does_not_stand_before_one_with_few(setup: Setup) {
        let server = open(setup).await;
        let [many, few] = [0; 2].map(|_| TenantId::new(&server.app.env));
        make_lanes_of(&server, many, 0, 50).await;
        server.advance(1);
        make_lanes_of(&server, few, 50, 2).await;
        let leased = lanes::lease_due_lanes(&server.app, KIND, 4).await.expect("leases");
        let whose: Vec<TenantId> = leased.iter().map(|lane| lane.tenant_id).collect();
        assert_eq!(whose, [many, few, many, few], "each in turn, the longest waiting first");
    }
}
