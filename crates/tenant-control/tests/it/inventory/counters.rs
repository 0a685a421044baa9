//! The figures of the summary, which are kept with every change, against a count of the devices themselves.

use std::collections::BTreeMap;

use kernel::base::DAY_MS;
use serde_json::{Value, json};
use tenant_control::features::devices::FullDevice;

use crate::support::devices::{Agent, DEVICES, devices, reported};
use crate::support::{Server, Tenancy, over_http};

use super::{all, id, patient};

const STEPS: usize = 75;
/// After so many steps everything is counted.
const COUNT_EVERY: usize = 15;
const HOSTS: usize = 5;

/// A sequence of numbers that is the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

type Counts = BTreeMap<String, BTreeMap<String, i64>>;

/// What the summary should say.
fn counted(devices: &[Value]) -> Counts {
    let mut counts = Counts::new();
    let mut count = |dimension: &str, value: &Value| {
        *counts.entry(dimension.to_owned()).or_default().entry(value.to_string()).or_default() += 1;
    };
    for device in devices {
        for dimension in ["platform", "type", "status", "health"] {
            count(dimension, &device[dimension]);
        }
        count("os", &device["os"]["name"]);
        count("organization", &device["organization_id"]);
        count("warranty", &device["warranty"]["status"]);
        let mut names: Vec<&Value> = device["software"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        names.dedup();
        for name in names {
            count("software", name);
        }
    }
    counts
}

/// What it does say.
async fn summary(server: &Server, tenancy: &Tenancy, query: &str) -> Counts {
    let summary = server.get(format!("{DEVICES}?view=summary{query}")).cookie(&tenancy.admin).await.ok(200);
    let mut counts = Counts::new();
    for (dimension, values) in summary.as_object().unwrap() {
        for value in values.as_array().into_iter().flatten() {
            let count = value["count"].as_i64().unwrap();
            counts.entry(dimension.clone()).or_default().insert(value["value"].to_string(), count);
        }
    }
    let all: i64 = counts.get("status").into_iter().flat_map(|by_status| by_status.values()).sum();
    assert_eq!(summary["total"], json!(all));
    counts
}

/// The summary of all, of these organizations and of none, against a count.
pub(super) async fn compare(server: &Server, tenancy: &Tenancy, organizations: &[String]) {
    let scopes = organizations.iter().map(|id| format!("&organization_id={id}"));
    for query in scopes.chain([String::new(), "&organization_id=none".to_owned()]) {
        let found = devices(server, &tenancy.admin, &format!("include=software{query}")).await;
        assert_eq!(summary(server, tenancy, &query).await, counted(&found), "{query}");
    }
}

over_http! {
    async fn the_summary_is_what_a_count_of_the_list_gives(setup: Setup) {
        let server = patient(setup).await;
        let acme = server.tenant("acme").await;
        let mut organizations = Vec::new();
        for slug in ["one", "two"] {
            organizations.push(server.bound_ingest_key(&acme, slug).await.0);
        }
        let key = server.ingest_key(&acme).await;
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        for step in 1..=STEPS {
            match numbers.below(10) {
                0 => {
                    if let Some(id) = any_device(&server, &acme, &mut numbers).await {
                        server.delete_device(&acme, &id).await;
                    }
                }
                1 => {
                    let end = numbers.one_of(&[None, Some("2020-01-01"), Some("2030-01-01"), Some("2026-03-01")]);
                    let change = move |full: &mut FullDevice| {
                        full.device.warranty.end_date = end.map(str::to_owned);
                        full.device.patch.failed = end.map(|end| i64::from(end == "2030-01-01"));
                    };
                    if let Some(id) = any_device(&server, &acme, &mut numbers).await {
                        server.edit_device(&acme, &id, change).await;
                    }
                }
                2 => {
                    server.advance(numbers.one_of(&[1, 2, 20]) * DAY_MS);
                    server.look_at_devices().await;
                }
                _ => {
                    let agent = any_agent(&mut numbers);
                    let sections = ["operatingsystem", "softwares", "drives", "hardware"];
                    let part = numbers.one_of(&sections);
                    let body = match numbers.below(4) {
                        0 => agent.partial(&[part]),
                        1 => agent.ocs(),
                        2 => agent.fusion(),
                        _ => agent.glpi(),
                    };
                    reported(&server, &key, &body).await;
                }
            }
            if step % COUNT_EVERY == 0 {
                compare(&server, &acme, &organizations).await;
            }
        }
        assert!(all(&server, &acme).await.len() > 1, "too few to show anything");
        for device in all(&server, &acme).await {
            server.delete_device(&acme, id(&device)).await;
        }
        assert_eq!(summary(&server, &acme, "").await, Counts::new(), "of nothing there is nothing");
    }
}

async fn any_device(server: &Server, tenancy: &Tenancy, numbers: &mut Numbers) -> Option<String> {
    let known = all(server, tenancy).await;
    let nth = numbers.below(known.len().max(1));
    known.get(nth).map(|device| id(device).to_owned())
}

fn any_agent(numbers: &mut Numbers) -> Agent {
    let mut agent = Agent::named(&format!("host-{}", numbers.below(HOSTS)));
    agent.tag = numbers.one_of(&[None, Some("one"), Some("two")]).map(str::to_owned);
    let systems = ["Debian GNU/Linux 12 (bookworm)", "Ubuntu 24.04 LTS", "Microsoft Windows 11 Pro"];
    numbers.one_of(&systems).clone_into(&mut agent.os_name);
    agent.chassis = numbers.one_of(&[None, Some("Laptop"), Some("Desktop")]).map(str::to_owned);
    agent.volumes = vec![("/".to_owned(), 1_000, numbers.one_of(&[10, 80, 500]))];
    let packages = ["bash", "curl", "git", "openssl", "vim"];
    agent.software.clear();
    for name in packages {
        for version in ["1", "2"] {
            if numbers.below(3) == 0 {
                agent.software.push((name.to_owned(), version.to_owned()));
            }
        }
    }
    agent
}
