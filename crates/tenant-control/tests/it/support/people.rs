//! Tenants, users by role, sessions and keys, and what a tenant is told.

use kernel::auth::{self, Role, Tenant};
use kernel::base::{Actor, TenantId, Timestamp};
use serde_json::{Value, json};
use tenant_control::features::pages::REDEEM_PATH;
use tenant_control::features::users::{NewUser, create_user};
use tokio::sync::oneshot;

use super::call::Call;
use super::server::Server;
use crate::webhooks::EVENTS;

pub const KEYS: &str = "/api/admin/api-keys";
pub const SESSION: &str = "/api/auth/session";
pub const AUDIT: &str = "/api/admin/audit";

/// A tenant and the cookie of its first admin.
pub struct Tenancy {
    pub tenant: Tenant,
    pub admin: String,
}

/// An API key as its maker got it.
#[derive(Clone, Debug)]
pub struct Key {
    pub id: String,
    pub plain: String,
    pub record: Value,
}

impl Server {
    pub async fn tenant(&self, slug: &str) -> Tenancy {
        let tenant = auth::create_tenant(&self.app.store, &slug.to_uppercase(), slug).await.expect("a tenant");
        let admin = self.user(&tenant, Role::Admin).await;
        self.forget_events(tenant.id).await;
        Tenancy { tenant, admin }
    }

    /// A tenant whose admin is a platform operator, too.
    pub async fn tenant_of_operator(&self, slug: &str) -> Tenancy {
        let tenancy = self.tenant(slug).await;
        let email = format!("operator@{slug}.test");
        let new = NewUser { email, name: None, role: Role::Admin, platform_operator: true };
        Tenancy { admin: self.session(&tenancy.tenant, new).await, ..tenancy }
    }

    /// Lets a feed begin with what the test does, and not with how its tenant was made.
    async fn forget_events(&self, tenant: TenantId) {
        let db = self.app.store.tenant_for_test(tenant, Actor::for_system());
        let forget = "DELETE FROM events WHERE tenant_id = $1";
        let forgotten = db.write(async move |tx| tx.exec(forget, kernel::args![]).await).await;
        assert_eq!(forgotten.expect("events are forgotten"), 1, "of the admin");
    }

    /// The cookie of a new user.
    pub async fn user(&self, tenant: &Tenant, role: Role) -> String {
        let email = format!("{}@{}.test", self.app.env.random.base62_text(10), tenant.slug);
        let new = NewUser { email, name: Some(format!("The {}", role.as_str())), role, platform_operator: false };
        self.session(tenant, new).await
    }

    /// What the button on the page of a sign-in link sends, as a browser does.
    pub fn redeem(&self, link: &str) -> Call<'_> {
        let (_, token) = link.split_once("token=").expect("a token");
        let form = self.post(REDEEM_PATH).header("content-type", "application/x-www-form-urlencoded");
        form.header("sec-fetch-site", "same-origin").body(format!("token={token}"))
    }

    pub async fn session(&self, tenant: &Tenant, new: NewUser) -> String {
        let user = create_user(&self.app.store, tenant, new).await.expect("a user");
        let lifetime_ms = self.app.settings.session_absolute_ms;
        let made = auth::create_session(&self.app.store, tenant.id, user.id, lifetime_ms).await;
        let (token, _) = made.expect("a session");
        format!("{}={}", self.app.settings.base_url.cookie_name(), token.expose_secret())
    }

    /// A key of the tenant with these scopes.
    pub async fn key(&self, tenancy: &Tenancy, scopes: &[&str]) -> Key {
        self.key_with(tenancy, &json!({"name": "Key", "scopes": scopes})).await
    }

    pub async fn key_with(&self, tenancy: &Tenancy, body: &Value) -> Key {
        let record = self.post(KEYS).cookie(&tenancy.admin).json(body).await.ok(201);
        let text = |name: &str| record[name].as_str().expect("a text").to_owned();
        Key { id: text("id"), plain: text("key"), record }
    }

    /// Sets the tenant's clock, as a node with a wrong time does by writing something.
    pub async fn set_clock(&self, tenant: TenantId, at: Timestamp) {
        let db = self.app.store.tenant_for_test(tenant, Actor::for_system());
        let set = "UPDATE tenant_clocks SET last_at = $2 WHERE tenant_id = $1";
        let moved = db.write(async move |tx| tx.exec(set, kernel::args![at]).await).await;
        assert_eq!(moved.expect("the clock is set"), 1);
    }

    /// Every event so far whose kind begins so, oldest first. A feed with nothing in it would wait, so it gets a key's
    /// event first.
    pub async fn events_of(&self, tenancy: &Tenancy, start: &str) -> Vec<Value> {
        self.key(tenancy, &["search:read"]).await;
        let (mut all, mut more) = (Vec::new(), String::new());
        loop {
            let page = self.get(format!("{EVENTS}?view=feed&limit=200{more}")).cookie(&tenancy.admin).await.ok(200);
            all.extend(page["data"].as_array().expect("events").iter().cloned());
            if page["has_more"] == false {
                break;
            }
            more = format!("&cursor={}", page["next_cursor"].as_str().expect("a cursor"));
        }
        all.retain(|event| event["type"].as_str().expect("a type").starts_with(start));
        all
    }

    /// The kinds of those events.
    pub async fn kinds_of(&self, tenancy: &Tenancy, start: &str) -> Vec<String> {
        let all = self.events_of(tenancy, start).await;
        all.iter().map(|event| event["type"].as_str().expect("a type").to_owned()).collect()
    }

    /// Holds the tenant's clock, so that every write of its records waits until the guard is dropped.
    pub async fn hold_writes(&self, tenant: TenantId) -> Held {
        let (entered, has_entered) = oneshot::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let db = self.app.store.tenant_for_test(tenant, Actor::for_system());
        let holding = tokio::spawn(async move {
            db.write(async move |tx| {
                tx.tick().await?;
                let _ = entered.send(());
                let _ = tokio::task::block_in_place(|| released.recv());
                Ok(())
            })
            .await
        });
        has_entered.await.expect("the clock is held");
        Held { _release: release, _holding: holding }
    }
}

/// See [`Server::hold_writes`].
pub struct Held {
    _release: std::sync::mpsc::Sender<()>,
    _holding: tokio::task::JoinHandle<kernel::base::Result<()>>,
}
