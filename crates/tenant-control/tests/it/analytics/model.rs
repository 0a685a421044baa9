//! Random histories: the figures are those that a plain computation has, whatever was added up when and by which node.

use std::collections::BTreeMap;

use figures::EXACT_MAX;
use kernel::base::{DAY_MS, HOUR_MS, MINUTE_MS};
use kernel::store::Purpose;
use tenant_control::features::rebuild;

use super::*;
use crate::support::dice::Dice;
use crate::tickets::{changed, make, organization};

/// With it every run is the same; another one makes another history.
const SEED: u64 = 7;
const STEPS: usize = 160;
const QUERIES: usize = 40;
const STATUSES: [&str; 8] = ["new", "open", "in_progress", "pending", "on_hold", "resolved", "closed", "cancelled"];
const PRIORITIES: [&str; 4] = ["low", "medium", "high", "critical"];

/// A ticket as it was from a moment on.
#[derive(Clone)]
struct State {
    at: i64,
    status: &'static str,
    priority: &'static str,
    organization: Option<String>,
}

#[derive(Clone)]
struct PlainTicket {
    record: Value,
    created_at: i64,
    answered_at: Option<i64>,
    states: Vec<State>,
}

impl PlainTicket {
    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    /// How it stood before a moment; none if it was not there.
    fn before(&self, until: i64) -> Option<&State> {
        self.states.iter().rev().find(|state| state.at < until)
    }

    fn is_open(state: &State) -> bool {
        !["resolved", "closed", "cancelled"].contains(&state.status)
    }

    /// When it became resolved.
    fn resolutions(&self) -> impl Iterator<Item = i64> {
        self.states
            .windows(2)
            .filter(|pair| pair[1].status == "resolved" && pair[0].status != "resolved")
            .map(|pair| pair[1].at)
    }
}

/// When a device was added and removed, and its id.
type PlainDevice = (i64, Option<i64>, String);

/// What has happened, plainly.
#[derive(Default)]
struct History {
    tickets: Vec<PlainTicket>,
    devices: Vec<PlainDevice>,
}

fn within(at: i64, since: i64, until: i64) -> bool {
    (since..until).contains(&at)
}

impl History {
    fn created(&self, since: i64, until: i64) -> i64 {
        self.tickets.iter().filter(|ticket| within(ticket.created_at, since, until)).count() as i64
    }

    fn resolved(&self, since: i64, until: i64) -> i64 {
        self.tickets.iter().flat_map(PlainTicket::resolutions).filter(|at| within(*at, since, until)).count() as i64
    }

    fn open(&self, until: i64) -> i64 {
        self.tickets.iter().filter(|ticket| ticket.before(until).is_some_and(PlainTicket::is_open)).count() as i64
    }

    fn born(&self, since: i64, until: i64) -> impl Iterator<Item = &State> {
        let born = self.tickets.iter().filter(move |ticket| within(ticket.created_at, since, until));
        born.filter_map(move |ticket| ticket.before(until))
    }

    fn first_responses(&self, since: i64, until: i64) -> Vec<i64> {
        let answered = self.tickets.iter().filter_map(|ticket| Some((ticket.answered_at?, ticket.created_at)));
        answered.filter(|(at, _)| within(*at, since, until)).map(|(at, created_at)| at - created_at).collect()
    }

    fn resolution_times(&self, since: i64, until: i64) -> Vec<i64> {
        let all = self.tickets.iter().flat_map(|ticket| ticket.resolutions().map(|at| (at, ticket.created_at)));
        all.filter(|(at, _)| within(*at, since, until)).map(|(at, created_at)| at - created_at).collect()
    }

    fn devices(&self, since: i64, until: i64) -> [i64; 3] {
        let count = |is: &dyn Fn(&PlainDevice) -> bool| self.devices.iter().filter(|device| is(device)).count() as i64;
        [
            count(&|(added, removed, _)| *added < until && removed.is_none_or(|removed| removed >= until)),
            count(&|(added, ..)| within(*added, since, until)),
            count(&|(_, removed, _)| removed.is_some_and(|removed| within(removed, since, until))),
        ]
    }
}

/// Compares a percentile in seconds with that of the values in milliseconds.
fn assert_percentile(shown: &Value, mut values: Vec<i64>, percent: usize, what: &str) {
    values.sort_unstable();
    if values.is_empty() {
        return assert_eq!(shown, &Value::Null, "{what}");
    }
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let exact = values[(values.len() * percent).div_ceil(100) - 1] as f64 / 1_000.0;
    let error = if values.len() > EXACT_MAX { exact * figures::RELATIVE_ERROR } else { 0.0 };
    let shown = shown.as_f64().unwrap();
    assert!((shown - exact).abs() <= error + 0.001, "{what}: {shown} for {exact}");
}

/// A tenant with what has happened to it.
struct Company {
    tenancy: Tenancy,
    organizations: Vec<String>,
    history: History,
}

impl Company {
    async fn new(server: &Server, slug: &str) -> Company {
        let tenancy = server.tenant(slug).await;
        let organizations =
            vec![organization(server, &tenancy, "globex").await, organization(server, &tenancy, "initech").await];
        Company { tenancy, organizations, history: History::default() }
    }

    fn pick_organization(&self, dice: &mut Dice) -> Option<String> {
        self.organizations.get(dice.below(3)).cloned()
    }

    async fn step(&mut self, server: &Server, dice: &mut Dice) {
        let at = server.now().as_millis();
        match dice.below(10) {
            0..=3 => {
                let (priority, organization) = (PRIORITIES[dice.below(4)], self.pick_organization(dice));
                let record =
                    make(server, &self.tenancy, &json!({"priority": priority, "organization_id": organization})).await;
                let first = State { at, status: "new", priority, organization };
                self.history.tickets.push(PlainTicket {
                    record,
                    created_at: at,
                    answered_at: None,
                    states: vec![first],
                });
            }
            4..=7 if !self.history.tickets.is_empty() => self.change_ticket(server, dice).await,
            8 => {
                let id = server.machine(&self.tenancy, &format!("pc-{at}-{}", self.history.devices.len()), None).await;
                self.history.devices.push((at, None, id));
            }
            _ => {
                if let Some((_, removed, id)) = self.history.devices.iter_mut().find(|device| device.1.is_none()) {
                    server.delete_device(&self.tenancy, id).await;
                    *removed = Some(at);
                }
            }
        }
    }

    async fn change_ticket(&mut self, server: &Server, dice: &mut Dice) {
        let at = server.now().as_millis();
        let organization = self.pick_organization(dice);
        let index = dice.below(self.history.tickets.len());
        let ticket = &mut self.history.tickets[index];
        let mut next = State { at, ..ticket.now().clone() };
        let change = match dice.below(5) {
            0 => {
                next.priority = PRIORITIES[dice.below(4)];
                json!({"priority": next.priority})
            }
            1 => {
                next.organization = organization;
                json!({"organization_id": next.organization})
            }
            2 => {
                ticket.answered_at.get_or_insert(at);
                json!({"comment": {"body": "On it.", "public": true}})
            }
            _ => {
                let ways: &[&'static str] = match next.status {
                    "resolved" => &["closed", "open"],
                    "closed" | "cancelled" => &["open"],
                    _ => &["open", "in_progress", "pending", "resolved", "resolved", "cancelled"],
                };
                next.status = ways[dice.below(ways.len())];
                json!({"status": next.status})
            }
        };
        ticket.record = changed(server, &self.tenancy, &ticket.record, &change).await;
        ticket.states.push(next);
    }

    async fn compare(&self, server: &Server, since: i64, until: i64) {
        let (from, to) = (Timestamp::from_millis(since), Timestamp::from_millis(until));
        let query = format!("since={from}&until={to}&include=tickets,devices&interval=hour&timezone=Asia/Kathmandu");
        let figures = server.figures(&self.tenancy, &query).await;
        let (history, totals) = (&self.history, &figures["tickets"]["totals"]);
        assert_eq!(totals["created"], history.created(since, until), "created {query}");
        assert_eq!(totals["resolved"], history.resolved(since, until), "resolved {query}");
        assert_eq!(totals["open"], history.open(until), "open {query}");
        for status in STATUSES {
            let expected = history.born(since, until).filter(|state| state.status == status).count();
            assert_eq!(totals["by_status"][status], expected, "{status} {query}");
        }
        for priority in PRIORITIES {
            let expected = history.born(since, until).filter(|state| state.priority == priority).count();
            assert_eq!(totals["by_priority"][priority], expected, "{priority} {query}");
        }
        let mut expected: BTreeMap<Option<String>, (i64, i64)> = BTreeMap::new();
        for state in history.born(since, until) {
            let counts = expected.entry(state.organization.clone()).or_default();
            *counts = (counts.0 + 1, counts.1 + i64::from(PlainTicket::is_open(state)));
        }
        let shown: BTreeMap<Option<String>, (i64, i64)> = totals["by_organization"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                (
                    row["organization_id"].as_str().map(str::to_owned),
                    (row["created"].as_i64().unwrap(), row["open"].as_i64().unwrap()),
                )
            })
            .collect();
        assert_eq!(shown, expected, "{query}");
        for (name, values) in [
            ("first_response_seconds", history.first_responses(since, until)),
            ("resolution_seconds", history.resolution_times(since, until)),
        ] {
            assert_percentile(&totals[name]["p50"], values.clone(), 50, &format!("{name} {query}"));
            assert_percentile(&totals[name]["p90"], values, 90, &format!("{name} {query}"));
        }
        let devices = &figures["devices"]["totals"];
        assert_eq!(
            ["total", "added", "removed"].map(|field| devices[field].as_i64().unwrap()),
            history.devices(since, until),
            "{query}"
        );
        let series = figures["tickets"]["series"].as_array().unwrap();
        for bucket in series {
            let start = at(bucket["start"].as_str().unwrap()).as_millis();
            let end = start + HOUR_MS;
            let expected = [history.created(start, end), history.resolved(start, end), history.open(end)];
            assert_eq!(
                ["created", "resolved", "backlog"].map(|field| bucket[field].as_i64().unwrap()),
                expected,
                "{start} {query}"
            );
        }
    }
}

over_http! {
    async fn figures_are_those_of_a_plain_computation(setup: Setup) {
        let server = open(setup).await;
        let mut dice = Dice(SEED);
        let begin = server.now().as_millis();
        let mut companies = [Company::new(&server, "acme").await, Company::new(&server, "umbrella").await];
        let mut other = server.second_node().await;
        for _ in 0..STEPS {
            let company = &mut companies[dice.below(2)];
            let node = if dice.below(2) == 0 { &server } else { &other };
            company.step(node, &mut dice).await;
            match dice.below(8) {
                0 => server.fold().await,
                1 => other.fold().await,
                2 => other = server.second_node().await,
                3 if dice.below(5) == 0 => {
                    rebuild::store::rebuild_figures(&server.app.store).await.unwrap();
                }
                // Otherwise the clock stands still.
                4 => server.advance(dice.between(0, 5)),
                5 => server.advance(dice.between(0, 20 * MINUTE_MS)),
                6 => server.advance(dice.between(0, 9 * HOUR_MS)),
                _ => {}
            }
        }
        server.advance(1);
        server.fold().await;
        let end = server.now().as_millis();
        let queries: Vec<(i64, i64)> = (0..QUERIES).map(|_| {
            let since = dice.between(begin - HOUR_MS, end);
            (since, dice.between(since + 1, end + DAY_MS))
        }).collect();
        for company in &companies {
            for (since, until) in &queries {
                company.compare(&server, *since, *until).await;
            }
        }
        // Sums that were spoilt are right again.
        let system = server.app.store.system(Purpose::Cli);
        for spoil in ["DELETE FROM rollups WHERE grain <> 15", "DELETE FROM cohorts", "DELETE FROM rollups WHERE dimension = 0"] {
            system.write(async move |tx| tx.exec(spoil, kernel::args![]).await).await.unwrap();
            rebuild::store::rebuild_figures(&server.app.store).await.unwrap();
            companies[0].compare(&server, begin, end).await;
        }
    }
}
