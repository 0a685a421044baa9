//! A random history of reports, changes of policy, moves and days that pass, on nodes that come and go: every row is always what
//! follows from scratch from all that was done.

mod plain;

use std::collections::BTreeMap;

use tenant_control::features::devices::Type;

use self::plain::{Deed, Level, Machine, Owner, Run, Target, tell_rows};
use super::*;
use crate::support::process::say;
use crate::tickets::without;

/// With it every run is the same; another one makes another history.
const SEED: u64 = 9;
/// As many as take some seconds on a database.
const STEPS: usize = 120;
const CUSTOMERS: usize = 2;
const MACHINES: usize = 7;

const KINDS: [Type; 5] = [Type::Server, Type::Server, Type::Laptop, Type::Network, Type::Virtual];
const SCHEDULES: [(&str, &str); 5] = [
    ("0 22 * * *", "Europe/Berlin"),
    ("30 */6 * * *", "UTC"),
    ("15 3 * * *", "America/New_York"),
    ("0 0,12 * * *", "Pacific/Auckland"),
    ("0 21,22 * * *", "UTC"),
];
const NAS: Target = Target { name: "nas", media: "disk", offsite: false, immutable: false };
const B2: Target = Target { name: "b2", media: "object", offsite: true, immutable: true };
const TAPE: Target = Target { name: "tape", media: "tape", offsite: true, immutable: false };

/// Numbers that look as if they were drawn.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        // Knuth's MMIX; the high half is the random one.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("it fits") % end
    }

    /// A time up to this long.
    fn time_ms(&mut self, end_ms: i64) -> i64 {
        i64::try_from(self.below(usize::try_from(end_ms).expect("a time"))).expect("it fits")
    }

    fn pick<T: Clone>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())].clone()
    }

    fn maybe<T>(&mut self, one_of: usize, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        (self.below(one_of) == 0).then(|| make(self))
    }
}

struct Play {
    nodes: [Server; 2],
    acme: Tenancy,
    key: IngestKey,
    customers: Vec<String>,
    ids: Vec<String>,
    /// As they were made.
    machines: Vec<Machine>,
    gone: Vec<bool>,
    history: Vec<(Timestamp, Deed)>,
    dice: Dice,
    tally: BTreeMap<&'static str, usize>,
}

over_http! {
    async fn random_histories_come_to_what_follows_from_scratch(setup: Setup) {
        let mut play = Play::begin(setup).await;
        for step in 0..STEPS {
            play.step().await;
            if step % 3 == 2 {
                play.check(step).await;
            }
        }
        say(&format!("seed {SEED}: {:?}", play.tally));
        for (what, least) in [
            ("reports", 60), ("late", 5), ("together", 3), ("without size", 5), ("moves", 3), ("types", 1), ("policies", 15), ("put right", 2), ("deleted", 1), ("waits", 18),
            ("restarts", 5), ("missed", 30), ("ok", 5), ("unknown", 2), ("warning", 10), ("critical", 10),
        ] {
            assert!(play.tally.get(what).copied().unwrap_or_default() >= least, "{what}: the history shows too little: {:?}", play.tally);
        }
    }
}

impl Play {
    async fn begin(setup: Setup) -> Play {
        let server = open(setup).await;
        let acme = server.tenant("acme").await;
        let key = server.ingest_key(&acme).await;
        let mut dice = Dice(SEED);
        let mut customers = Vec::new();
        for n in 0..CUSTOMERS {
            customers.push(organization(&server, &acme, &format!("customer-{n}")).await);
        }
        let (mut ids, mut machines) = (Vec::new(), Vec::new());
        for n in 0..MACHINES {
            // The first belongs to nobody for ever: the row of nobody is there while it has devices.
            let customer = if n == 0 { None } else { Some(dice.below(CUSTOMERS)) };
            let kind = if n < 3 { Type::Server } else { dice.pick(&KINDS) };
            let place = customer.map(|at| customers[at].as_str());
            ids.push(server.machine_of(&acme, &format!("machine-{n}"), place, kind).await);
            machines.push(Machine { kind, customer, is_gone: false, known_since: server.now() });
        }
        let second = server.second_node().await;
        let gone = vec![false; MACHINES];
        Play {
            nodes: [server, second],
            acme,
            key,
            customers,
            ids,
            machines,
            gone,
            history: Vec::new(),
            dice,
            tally: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str, times: usize) {
        *self.tally.entry(what).or_default() += times;
    }

    fn now(&self) -> Timestamp {
        self.nodes[0].now()
    }

    fn note(&mut self, deed: Deed) {
        self.history.push((self.now(), deed));
    }

    fn live(&mut self) -> usize {
        let live: Vec<usize> = (0..MACHINES).filter(|at| !self.gone[*at]).collect();
        self.dice.pick(&live)
    }

    /// A live device that a level may exclude, if there is one: an organization its own, and a device none.
    fn excludable(&mut self, owner: Owner) -> Option<usize> {
        let wanted = self.live();
        let place = self.machines[wanted].customer;
        let mut moves = self.history.iter().filter_map(|(_, deed)| match deed {
            Deed::Move(device, to) if *device == wanted => Some(*to),
            _ => None,
        });
        let place = moves.next_back().unwrap_or(place);
        match owner {
            Owner::Tenant => Some(wanted),
            Owner::Customer(at) => Some(wanted).filter(|_| place == Some(at)),
            Owner::Device(_) => None,
        }
    }

    /// A live device that may be moved, changed and deleted.
    fn movable(&mut self) -> usize {
        let live: Vec<usize> = (1..MACHINES).filter(|at| !self.gone[*at]).collect();
        self.dice.pick(&live)
    }

    async fn step(&mut self) {
        self.nodes.swap(0, 1);
        match self.dice.below(24) {
            0..=9 => self.report().await,
            10..=15 => self.wait().await,
            16 => {
                let (device, to) = (self.movable(), self.dice.below(CUSTOMERS + 1));
                let to = (to < CUSTOMERS).then_some(to);
                let id = to.map(|at| self.customers[at].parse().unwrap());
                self.nodes[0]
                    .edit_device(&self.acme, &self.ids[device], move |full| full.device.organization_id = id)
                    .await;
                self.note(Deed::Move(device, to));
                self.count("moves", 1);
            }
            17 => {
                let (device, kind) = (self.movable(), self.dice.pick(&KINDS));
                self.nodes[0].edit_device(&self.acme, &self.ids[device], move |full| full.device.r#type = kind).await;
                self.note(Deed::Retype(device, kind));
                self.count("types", 1);
            }
            18 if self.gone.iter().filter(|gone| **gone).count() < 2 && self.dice.below(3) == 0 => {
                let device = self.movable();
                self.nodes[0].delete_device(&self.acme, &self.ids[device]).await;
                self.gone[device] = true;
                self.note(Deed::Delete(device));
                self.count("deleted", 1);
            }
            18..=20 => self.set_policy().await,
            21 => self.do_everything().await,
            _ => {
                // A node goes, and another comes.
                self.nodes[1] = self.nodes[0].second_node().await;
                self.count("restarts", 1);
            }
        }
        self.nodes[1].judge_backups().await;
    }

    async fn wait(&mut self) {
        let ms = match self.dice.below(8) {
            0 => 1,
            1..=3 => self.dice.time_ms(6 * HOUR_MS),
            4..=6 => self.dice.time_ms(DAY_MS),
            _ => self.dice.time_ms(5 * DAY_MS),
        };
        if self.dice.below(2) == 0 {
            self.nodes[0].judge_for(ms).await;
        } else {
            // Nobody was there to judge on the way.
            self.nodes[0].advance(ms);
        }
        self.note(Deed::Wait);
        self.count("waits", 1);
    }

    async fn report(&mut self) {
        let device = self.live();
        let now = self.now();
        let earlier: Vec<Timestamp> = self.reports_of(device).map(|run| run.ended).collect();
        let ended = match self.dice.below(7) {
            6 if !earlier.is_empty() => {
                self.count("together", 1);
                self.dice.pick(&earlier)
            }
            0 => now.plus_ms(-self.dice.time_ms(10 * DAY_MS)),
            1 => now.plus_ms(-self.dice.time_ms(DAY_MS)),
            2 => now.plus_ms(self.dice.time_ms(10 * MINUTE_MS)),
            _ => now.plus_ms(-self.dice.time_ms(10 * MINUTE_MS)),
        };
        if ended < now.plus_ms(-HOUR_MS) {
            self.count("late", 1);
        }
        let run = Run {
            device,
            job: self.dice.pick(&["nightly", "database"]),
            kind: self.dice.pick(&["backup", "backup", "backup", "backup", "verify", "restore_test", "prune"]),
            status: self.dice.pick(&["success", "success", "success", "warning", "failed"]),
            started: ended.plus_ms(-self.dice.time_ms(3 * HOUR_MS)).clamp(Timestamp::from_millis(0), now),
            ended,
            target: self.dice.pick(&["nas", "nas", "b2", "b2", "tape", "usb"]),
            size: (self.dice.below(4) > 0).then(|| i64::try_from(self.dice.below(1_000)).unwrap()),
            received: now,
            customer: None,
        };
        self.count("without size", usize::from(run.size.is_none()));
        self.send(run).await;
    }

    fn reports_of(&self, device: usize) -> impl Iterator<Item = &Run> {
        self.history.iter().filter_map(move |(_, deed)| match deed {
            Deed::Report(run) if run.device == device => Some(run),
            _ => None,
        })
    }

    async fn send(&mut self, run: Run) {
        let report = job(&self.ids[run.device], run.kind, run.status, run.ended);
        let own = json!({
            "external_id": format!("run {}", self.history.len()), "job": run.job, "started_at": run.started, "target": run.target, "size_bytes": run.size,
        });
        self.nodes[0].report(&self.key, &with(&report, &own)).await;
        self.note(Deed::Report(run));
        self.count("reports", 1);
    }

    /// Everything is put right at last: all is switched on, and every device has all that can be asked for.
    async fn do_everything(&mut self) {
        let good =
            Level { enabled: Some(true), targets: Some(vec![NAS, B2]), excluded: Some(Vec::new()), ..Level::default() };
        for customer in 0..CUSTOMERS {
            self.set(Owner::Customer(customer), good.clone()).await;
        }
        for device in (0..MACHINES).filter(|at| !self.gone[*at]).collect::<Vec<_>>() {
            if self.dice.below(2) == 0 {
                self.set(Owner::Device(device), Level::default()).await;
            }
            for (kind, target) in [("backup", "nas"), ("backup", "b2"), ("verify", "nas"), ("restore_test", "b2")] {
                let ended = self.now().plus_ms(-self.dice.time_ms(MINUTE_MS));
                let size = i64::try_from(self.dice.below(1_000)).unwrap();
                for job in ["nightly", "database"] {
                    self.send(Run {
                        device,
                        job,
                        kind,
                        status: "success",
                        started: ended,
                        ended,
                        target,
                        size: Some(size),
                        received: ended,
                        customer: None,
                    })
                    .await;
                }
            }
        }
        self.count("put right", 1);
    }

    async fn set_policy(&mut self) {
        let owner = match self.dice.below(5) {
            0 => Owner::Tenant,
            1..=3 => Owner::Customer(self.dice.below(CUSTOMERS)),
            _ => Owner::Device(self.live()),
        };
        let excluded = self.excludable(owner);
        let dice = &mut self.dice;
        let level = Level {
            enabled: dice.maybe(5, |dice| dice.below(3) > 0),
            schedule: dice.maybe(2, |dice| dice.pick(&SCHEDULES)),
            rpo: dice.maybe(3, |dice| dice.pick(&[(26, 72), (48, 30), (100, 200)])),
            targets: dice.maybe(2, |dice| dice.pick(&[vec![NAS, B2], vec![NAS], vec![B2, TAPE], vec![]])),
            verification: dice.maybe(3, |dice| dice.pick(&[(Some(7), Some(10)), (None, None), (Some(2), None)])),
            alert: dice.maybe(3, |dice| i64::try_from(1 + dice.below(3)).unwrap()),
            excluded: dice.maybe(4, |_| excluded).flatten().map(|device| vec![device]),
        };
        self.set(owner, level).await;
    }

    async fn set(&mut self, owner: Owner, level: Level) {
        let query = match owner {
            Owner::Tenant => String::new(),
            Owner::Customer(at) => format!("organization_id={}", self.customers[at]),
            Owner::Device(at) => format!("device_id={}", self.ids[at]),
        };
        self.nodes[0].set_policy(&self.acme, &query, &self.body_of(&level)).await;
        self.note(Deed::Set(owner, level));
        self.count("policies", 1);
    }

    fn body_of(&self, level: &Level) -> Value {
        let target = |one: &Target| {
            json!({
                "name": one.name, "type": "other", "media": one.media, "offsite": one.offsite, "immutable": one.immutable, "immutable_days": null,
            })
        };
        let excluded = |at: &usize| json!({"id": self.ids[*at], "reason": "Chance"});
        json!({
            "enabled": level.enabled,
            "schedule": level.schedule.map(|(cron, timezone)| json!({"cron": cron, "timezone": timezone})),
            "rpo_hours": level.rpo.map(|(server, workstation)| json!({"server": server, "workstation": workstation})),
            "targets": level.targets.as_ref().map(|all| all.iter().map(target).collect::<Vec<_>>()),
            "verification": level.verification.map(|(every, restore)| json!({"every_days": every, "restore_test_every_days": restore})),
            "alert_after_failures": level.alert,
            "excluded_devices": level.excluded.as_ref().map(|all| all.iter().map(excluded).collect::<Vec<_>>()),
        })
    }

    async fn check(&mut self, step: usize) {
        let rows = self.nodes[0].postures(&self.acme).await;
        let wanted = tell_rows(&self.machines, CUSTOMERS, &self.history, self.now());
        assert_eq!(rows.len(), wanted.len(), "{rows:#?}");
        for row in rows {
            let customer = self.customers.iter().position(|id| row["organization_id"] == *id);
            let told = self.comparable(&row);
            let wanted = &wanted[&customer];
            if told != *wanted {
                let of: Vec<String> = wanted
                    .as_object()
                    .unwrap()
                    .iter()
                    .filter(|(name, value)| told[name.as_str()] != **value)
                    .map(|(name, value)| format!("{name}: {} and not {value}", told[name.as_str()]))
                    .collect();
                let deeds: Vec<String> = self.history.iter().map(|(at, deed)| format!("{at} {deed:?}")).collect();
                panic!(
                    "seed {SEED}, step {step}, customer {customer:?} at {}:\n{}\nafter\n{}",
                    self.now(),
                    of.join("\n"),
                    deeds.join("\n")
                );
            }
            let missed: i64 = row["days"].as_array().unwrap().iter().map(|day| day["missed"].as_i64().unwrap()).sum();
            self.count("missed", usize::try_from(missed).unwrap());
            self.count(plain::GRADES.into_iter().find(|one| row["health"] == *one).unwrap(), 1);
        }
    }

    /// A row without its names, its reasons in the order and the words of the plain computation.
    fn comparable(&self, row: &Value) -> Value {
        let mut told = without(row, &["organization_id", "organization_name"]);
        let since_is_known = |code: &Value| {
            !["disabled", "never_reported", "too_few_copies", "too_few_media", "no_offsite", "no_immutable"]
                .iter()
                .any(|one| code == one)
        };
        let one = |reason: &Value| {
            let device = self.ids.iter().position(|id| reason["device_id"] == *id);
            let since =
                if device.is_some() || since_is_known(&reason["code"]) { reason["since"].clone() } else { Value::Null };
            json!([reason["code"], reason["severity"], device, since])
        };
        let mut reasons: Vec<Value> = row["reasons"].as_array().unwrap().iter().map(one).collect();
        reasons.sort_by_key(Value::to_string);
        told["reasons"] = json!(reasons);
        told
    }
}
