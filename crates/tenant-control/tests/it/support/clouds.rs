//! Clouds of the tests' own, and what a test does with providers and machines.
//!
//! A stub keeps its machines in memory, on a port of this machine. It does to each kind of request what a test asks for, and
//! remembers all that came.

mod digitalocean;
mod hetzner;
mod state;
mod stub;
mod wire;

use std::time::Duration;

use cloud_fleet::CLOUD_LANE;
use cloud_fleet::settings::CloudSettings;
use cloud_fleet::vms::ended;
use cloud_fleet::worker::CloudWorker;
use clouds::CloudEndpoints;
use kernel::base::DAY_MS;
use kernel::http::RatePolicy;
use kernel::jobs::lanes;
use serde_json::{Value, json};

pub use state::{Asked, Fault, Rights};
pub use stub::CloudStub;

use super::{Answer, Server, Setup, Tenancy};

pub const PROVIDERS: &str = "/api/cloud/providers";
pub const VMS: &str = "/api/cloud/vms";

/// More moments than any test lets pass; a lane that stays due for ever would otherwise never let its test end.
const MOMENTS_MAX: usize = 5_000;
/// Work that is not done after this long never is.
const WORK_MAX: Duration = Duration::from_mins(1);

/// Both clouds.
pub struct Clouds {
    pub hetzner: CloudStub,
    pub digitalocean: CloudStub,
}

impl Clouds {
    pub fn both(&self) -> [&CloudStub; 2] {
        [&self.hetzner, &self.digitalocean]
    }
}

/// A server whose clouds are stubs.
pub async fn open(setup: Setup) -> (Server, Clouds) {
    open_with(setup, |_| ()).await
}

/// The same with other settings. Sessions outlast the days of a test, and no test meets a budget or a pace.
pub async fn open_with(mut setup: Setup, change: impl FnOnce(&mut CloudSettings)) -> (Server, Clouds) {
    let clouds = add_clouds(&mut setup, change).await;
    setup.settings.session_idle_ms = 10_000 * DAY_MS;
    setup.settings.session_absolute_ms = 10_000 * DAY_MS;
    for policy in RatePolicy::ALL {
        setup.settings.rate_table.set(policy, 10_000_000);
    }
    (setup.start().await, clouds)
}

/// Clouds of a server that is not started yet.
pub async fn add_clouds(setup: &mut Setup, change: impl FnOnce(&mut CloudSettings)) -> Clouds {
    let clouds =
        Clouds { hetzner: CloudStub::start_hetzner().await, digitalocean: CloudStub::start_digitalocean().await };
    let options = clouds.both().map(CloudStub::endpoint);
    let endpoints = CloudEndpoints::parse(options.iter().map(String::as_str)).unwrap();
    let mut settings = CloudSettings::with_endpoints(endpoints, setup.settings.outbound.clone()).unwrap();
    settings.requests_per_second = Some(100_000.0);
    change(&mut settings);
    setup.settings.set_feature_settings(settings);
    clouds
}

pub fn one_provider(provider: &Value) -> String {
    format!("{PROVIDERS}?id={}", provider["id"].as_str().expect("an id"))
}

pub fn one_vm(vm: &Value) -> String {
    format!("{VMS}?id={}", vm["id"].as_str().expect("an id"))
}

/// A new provider of a stub, in its region.
pub fn provider_body(stub: &CloudStub, token: &str) -> Value {
    json!({"name": "Production", "kind": stub.kind(), "regions": [stub.region()], "credentials": {"token": token}})
}

/// An order for one machine.
pub fn order_body(stub: &CloudStub, provider: &Value) -> Value {
    json!({
        "provider_id": provider["id"], "name": "web-1", "region": stub.region(), "size": stub.size(), "image": stub.image(),
    })
}

impl Server {
    /// What works on clouds; each is another node, as far as leases go.
    pub fn cloud_worker(&self) -> CloudWorker {
        CloudWorker::new(self.app.clone())
    }

    /// Does everything of clouds that is due at this moment.
    pub async fn cloud_work(&self) {
        let worked = tokio::time::timeout(WORK_MAX, self.cloud_worker().run_due()).await;
        worked.expect("the work on clouds ends").expect("the worker works");
    }

    /// Lets time pass, and does what comes due on the way, when it does.
    pub async fn cloud_work_for(&self, ms: i64) {
        let end = self.now().plus_ms(ms);
        self.cloud_work().await;
        for _ in 0..MOMENTS_MAX {
            let due = lanes::find_next_due(&self.app.store, CLOUD_LANE).await.expect("the lanes");
            let Some(due) = due.filter(|due| *due <= end) else {
                self.advance_to(end);
                return self.cloud_work().await;
            };
            self.advance_to(due);
            self.cloud_work().await;
        }
        panic!("something of a cloud is due for ever");
    }

    /// Takes machines off the list that ended long ago, as the job does.
    pub async fn forget_ended_machines(&self) {
        ended::store::forget_ended_machines(&self.app).await.expect("the job works");
    }

    /// A provider of an account, verified and synced.
    pub async fn connect(&self, tenancy: &Tenancy, stub: &CloudStub, account: &str) -> Value {
        let token = stub.token(account, Rights::All);
        self.connect_by(tenancy, &provider_body(stub, &token)).await
    }

    /// The same, of this body.
    pub async fn connect_by(&self, tenancy: &Tenancy, body: &Value) -> Value {
        let made = self.post(PROVIDERS).cookie(&tenancy.admin).json(body).await.ok(201);
        self.cloud_work().await;
        let provider = self.read_provider(tenancy, &made).await;
        assert_eq!(
            (&provider["status"], &provider["last_sync_error"]),
            (&json!("active"), &Value::Null),
            "{provider:#}"
        );
        provider
    }

    pub async fn read_provider(&self, tenancy: &Tenancy, provider: &Value) -> Value {
        self.get(one_provider(provider)).cookie(&tenancy.admin).await.ok(200)
    }

    /// Asks for something to be done with a provider.
    pub async fn tell_provider(&self, tenancy: &Tenancy, provider: &Value, action: &str) -> Answer {
        let body = json!({"action": action, "id": provider["id"]});
        self.post(PROVIDERS).cookie(&tenancy.admin).json(&body).await
    }

    /// Reads the machines of a provider now.
    pub async fn sync(&self, tenancy: &Tenancy, provider: &Value) {
        self.tell_provider(tenancy, provider, "sync").await.is(202);
        self.cloud_work().await;
    }

    pub async fn post_order(&self, tenancy: &Tenancy, body: &Value) -> Answer {
        self.post(VMS).cookie(&tenancy.admin).json(body).await
    }

    /// A machine that is ordered, and not asked for in the cloud yet.
    pub async fn order(&self, tenancy: &Tenancy, stub: &CloudStub, provider: &Value) -> Value {
        self.post_order(tenancy, &order_body(stub, provider)).await.ok(202)
    }

    pub async fn read_vm(&self, tenancy: &Tenancy, vm: &Value) -> Value {
        self.get(one_vm(vm)).cookie(&tenancy.admin).await.ok(200)
    }

    /// Every row of a list of machines, page by page.
    pub async fn list_vms(&self, tenancy: &Tenancy, query: &str) -> Vec<Value> {
        let (mut rows, mut more) = (Vec::new(), String::new());
        loop {
            let page = self.get(format!("{VMS}?{query}{more}")).cookie(&tenancy.admin).await.ok(200);
            rows.extend(page["data"].as_array().expect("data").iter().cloned());
            assert_eq!(page["has_more"], page["next_cursor"].is_string(), "{query}");
            match page["next_cursor"].as_str() {
                Some(cursor) => more = format!("&cursor={cursor}"),
                None => return rows,
            }
        }
    }

    /// The names of the machines that a query finds, in order.
    pub async fn vm_names(&self, tenancy: &Tenancy, query: &str) -> Vec<String> {
        let mut names: Vec<String> = self.list_vms(tenancy, query).await.iter().map(name_of).collect();
        names.sort_unstable();
        names
    }
}

pub fn name_of(vm: &Value) -> String {
    vm["name"].as_str().expect("a name").to_owned()
}

/// How far the order of a machine has come.
#[track_caller]
pub fn operation_status(vm: &Value) -> &str {
    vm["operation"]["status"].as_str().unwrap_or_else(|| panic!("no operation in {vm:#}"))
}
