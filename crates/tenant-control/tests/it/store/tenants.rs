//! Two walls between tenants: the handle binds `$1`, and PostgreSQL's row-level security stands behind it.

use kernel::args;
use kernel::base::{Actor, Code, TenantId, UserId};
use kernel::store::{Db, PostgresOptions, Purpose, Select, Store, StoreOptions};

use super::code;
use crate::support::postgres::connect;
use crate::support::stores::{TestStore, on_both};

const INSERT_USER: &str = "INSERT INTO users (tenant_id, id, email, name, role, platform_operator, version, created_at,
     updated_at) VALUES ($1, $2, $3, 'A', 'admin', $4, 1, 0, 0)";

async fn add_user(db: &Db, email: &'static str) {
    let id = UserId::new(db.env());
    db.write(async move |tx| tx.exec(INSERT_USER, args![id, email, false]).await).await.unwrap();
}

on_both! {
    async fn the_tenant_is_bound_by_the_handle(store: TestStore) {
        let (a, b) = (store.tenant("a").await, store.tenant("b").await);
        add_user(&a, "x@a").await;
        add_user(&b, "x@b").await;
        let sql = "SELECT email FROM users WHERE tenant_id = $1 AND role = $2";
        assert_eq!(a.list::<String>(sql, args!["admin"]).await.unwrap(), ["x@a"]);
        assert_eq!(b.list::<String>(sql, args!["admin"]).await.unwrap(), ["x@b"]);
        let select = Select::new("SELECT email FROM users WHERE tenant_id = $1").where_in("role", ["admin", "nobody"]).limit(9);
        assert_eq!(a.select::<String>(&select).await.unwrap(), ["x@a"]);
        let everyone = store.system(Purpose::Cli);
        assert_eq!(everyone.get_one::<i64>("SELECT count(*) FROM users", args![]).await.unwrap(), 2);
    }

    async fn a_statement_that_does_not_use_the_tenant_fails(store: TestStore) {
        let db = store.tenant("a").await;
        assert_eq!(code(db.get_one::<i64>("SELECT count(*) FROM users", args![]).await), Some(Code::Internal));
        let ten = "SELECT count(*) FROM users WHERE role IN ($2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let x = "x";
        assert_eq!(code(db.get_one::<i64>(ten, args![x, x, x, x, x, x, x, x, x]).await), Some(Code::Internal));
        let quoted = "SELECT count(*) FROM users WHERE name = '$1' -- $1";
        assert_eq!(code(db.get_one::<i64>(quoted, args![]).await), Some(Code::Internal));
        let written = db.write(async |tx| tx.exec("DELETE FROM users", args![]).await);
        assert_eq!(code(written.await), Some(Code::Internal));
    }

    async fn a_wrong_number_of_arguments_fails(store: TestStore) {
        let db = store.tenant("a").await;
        let sql = "SELECT count(*) FROM users WHERE tenant_id = $1 AND role = $2";
        assert_eq!(code(db.get_one::<i64>(sql, args![]).await), Some(Code::Internal));
        assert_eq!(code(db.get_one::<i64>(sql, args!["a", "b"]).await), Some(Code::Internal));
        assert_eq!(db.get_one::<i64>(sql, args!["a"]).await.unwrap(), 0);
    }

    async fn a_select_for_one_kind_of_handle_is_refused_on_the_other(store: TestStore) {
        let select = Select::for_system("SELECT count(*) FROM users WHERE true").append_sql("AND role = ?", ["x".into()]);
        assert_eq!(code(store.tenant("a").await.select::<i64>(&select).await), Some(Code::Internal));
        let select = Select::new("SELECT count(*) FROM users WHERE tenant_id = $1");
        assert_eq!(code(store.system(Purpose::Cli).select::<i64>(&select).await), Some(Code::Internal));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_level_security_hides_other_tenants_from_a_careless_statement() {
    let store = TestStore::postgres().await;
    let (a, b) = (store.tenant("a").await, store.tenant("b").await);
    add_user(&a, "x@a").await;
    add_user(&b, "x@b").await;
    let careless = "SELECT email FROM users WHERE $1 = $1";
    // Alternating on the same few connections: each checkout names its tenant anew.
    for _ in 0..20 {
        assert_eq!(a.list::<String>(careless, args![]).await.unwrap(), ["x@a"]);
        assert_eq!(b.list::<String>(careless, args![]).await.unwrap(), ["x@b"]);
        let inside = b.write(async move |tx| tx.list::<String>(careless, args![]).await).await.unwrap();
        assert_eq!(inside, ["x@b"]);
    }
    let nobody = store.tenant_for_test(TenantId::new(store.env()), Actor::for_system());
    assert!(nobody.list::<String>(careless, args![]).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn row_level_security_refuses_a_row_of_another_tenant() {
    let store = TestStore::postgres().await;
    let (a, b) = (store.tenant("a").await, store.tenant("b").await);
    let other = b.tenant_id().unwrap();
    let smuggle = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence) SELECT $2, 0, 0 WHERE $1 = $1";
    let smuggled = a.write(async move |tx| tx.exec(smuggle, args![other]).await).await;
    assert!(smuggled.unwrap_err().to_string().contains("row-level security"));
    add_user(&b, "x@b").await;
    let taken = a.write(async |tx| tx.exec("UPDATE users SET name = 'mine' WHERE $1 = $1", args![]).await);
    assert_eq!(taken.await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_names_no_tenant_sees_nothing() {
    let store = TestStore::postgres().await;
    add_user(&store.tenant("a").await, "x@a").await;
    let bare = connect(&store.database().url).await;
    let seen: i64 = bare.query_one("SELECT count(*) FROM users", &[]).await.unwrap().get(0);
    assert_eq!(seen, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_row_level_security_does_not_hold_back_is_refused() {
    let store = TestStore::postgres().await;
    let admin = connect(&store.database().url_as_superuser()).await;
    // Roles belong to the whole server, so another run of this test may have made it already.
    let _ = admin.batch_execute("CREATE ROLE tc_bypass LOGIN NOSUPERUSER BYPASSRLS").await;
    for role in ["postgres", "tc_bypass"] {
        let mut postgres = PostgresOptions::new(store.database().url_as(role));
        let refused = Store::open(StoreOptions::postgres(postgres.clone()), store.env().clone()).await.err().unwrap();
        let message = refused.to_string();
        assert!(message.contains(role) && message.contains("--allow-superuser"), "{message}");
        postgres.allow_superuser = true;
        Store::open(StoreOptions::postgres(postgres), store.env().clone()).await.unwrap();
    }
}
