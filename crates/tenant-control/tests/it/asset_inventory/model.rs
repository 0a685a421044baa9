//! A random sequence of devices that come, change and go, and of questions, against a plain list in memory that must give the
//! same answers.

use std::collections::BTreeMap;

use kernel::base::StringEnum;
use serde_json::Value;
use tenant_control::features::devices::{DeviceHealth, DeviceStatus, FullDevice, Platform, Type};

use super::{add, change, named, remove, software, text, walk};
use crate::support::process::say;
use crate::support::{Server, Tenancy, over_http};
use crate::tickets::{generous, organization};

/// With it every run is the same; another one makes another sequence.
const SEED: u64 = 20_260_115;
/// As many as take some seconds on a database.
const STEPS: usize = 160;

const NAMES: [&str; 6] = ["web-01", "web-02.acme.test", "db 1", "Größe", "printer", "web printer"];
const TAGS: [&str; 4] = ["red", "green", "blue", "ü"];
const SOFTWARE: [(&str, &str); 5] = [("Bash", "5.1"), ("bash", "5.2"), ("git", "2"), ("OpenSSL", "3"), ("zsh", "")];

/// Numbers that look as if they were drawn.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        // Knuth's MMIX; the high half is the random one.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("it fits") % end
    }

    fn pick<T: Clone>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())].clone()
    }

    fn some<T: Clone>(&mut self, of: &[T]) -> Vec<T> {
        of.iter().filter(|_| self.below(3) == 0).cloned().collect()
    }
}

/// A device as the plain list knows it.
struct Known {
    id: String,
    full: FullDevice,
    is_gone: bool,
    /// In the order of changes.
    changed: usize,
}

struct Play<'a> {
    server: &'a Server,
    acme: Tenancy,
    organizations: Vec<String>,
    dice: Dice,
    all: Vec<Known>,
    changes: usize,
    tally: BTreeMap<&'static str, usize>,
}

/// A filter: how it is asked for, and what it wants.
type Filter = (String, Box<dyn Fn(&FullDevice) -> bool>);

over_http! {
    async fn random_sequences_come_to_what_a_plain_list_says(setup: Setup) {
        let server = generous(setup).await;
        let acme = server.tenant("acme").await;
        let organizations = vec![organization(&server, &acme, "initech").await, organization(&server, &acme, "hooli").await];
        let mut play = Play { server: &server, acme, organizations, dice: Dice(SEED), all: Vec::new(), changes: 0, tally: BTreeMap::new() };
        for _ in 0..STEPS {
            play.step().await;
        }
        say(&format!("seed {SEED}: {:?}", play.tally));
        for (what, least) in [("made", 25), ("changed", 15), ("deleted", 5), ("asked", 50), ("rows", 150), ("followed", 8), ("tombstones", 5)] {
            assert!(play.tally.get(what).copied().unwrap_or_default() >= least, "{what}: the sequence shows too little");
        }
    }
}

impl Play<'_> {
    fn count(&mut self, what: &'static str, times: usize) {
        *self.tally.entry(what).or_default() += times;
    }

    async fn step(&mut self) {
        let live: Vec<usize> = (0..self.all.len()).filter(|at| !self.all[*at].is_gone).collect();
        match self.dice.below(14) {
            0..=2 => self.make().await,
            3..=5 if !live.is_empty() => {
                let at = self.dice.pick(&live);
                self.change(at).await;
            }
            6 if !live.is_empty() => {
                let at = self.dice.pick(&live);
                remove(self.server, &self.acme, &self.all[at].id).await;
                self.changes += 1;
                (self.all[at].is_gone, self.all[at].changed) = (true, self.changes);
                self.count("deleted", 1);
            }
            7 => self.server.advance(1),
            8 => self.follow().await,
            _ => self.ask().await,
        }
    }

    fn vary(&mut self, full: &mut FullDevice) {
        let device = &mut full.device;
        match self.dice.below(9) {
            0 => device.hostname = Some(self.dice.pick(&NAMES).to_owned()),
            1 => device.display_name = Some(self.dice.pick(&NAMES).to_owned()),
            2 => device.r#type = self.dice.pick(&[Type::Server, Type::Laptop, Type::Printer]),
            3 => device.platform = self.dice.pick(&[Platform::Linux, Platform::Windows]),
            4 => device.status = self.dice.pick(&[DeviceStatus::Online, DeviceStatus::Offline, DeviceStatus::Stale]),
            5 => {
                let place = self.dice.below(3);
                device.organization_id = self.organizations.get(place).map(|id| id.parse().expect("an id"));
            }
            6 => device.tags = self.dice.some(&TAGS).into_iter().map(str::to_owned).collect(),
            7 => {
                full.parts.software =
                    self.dice.some(&SOFTWARE).into_iter().map(|(name, version)| software(name, version)).collect();
            }
            _ => device.needs_reboot = Some(self.dice.below(2) == 0),
        }
        // Only what has sent an inventory is judged.
        full.device.inventory_at = Some(kernel::base::Timestamp::from_millis(1));
        let wanting = full.device.needs_reboot == Some(true) || full.device.status == DeviceStatus::Stale;
        full.device.health = if wanting { DeviceHealth::NeedsAttention } else { DeviceHealth::Healthy };
    }

    async fn make(&mut self) {
        let name = self.dice.pick(&NAMES);
        let mut full = named(name);
        for _ in 0..6 {
            self.vary(&mut full);
        }
        let id = add(self.server, &self.acme, full.clone()).await;
        self.changes += 1;
        self.all.push(Known { id, full, is_gone: false, changed: self.changes });
        self.count("made", 1);
    }

    async fn change(&mut self, at: usize) {
        let before = self.all[at].full.clone();
        let mut after = before.clone();
        self.vary(&mut after);
        let wanted = after.clone();
        change(self.server, &self.acme, &self.all[at].id, move |full| {
            let (old, mut new) = (&full.device, wanted.device);
            (new.id, new.version, new.created_at, new.updated_at) =
                (old.id, old.version, old.created_at, old.updated_at);
            (full.device, full.parts) = (new, wanted.parts);
        })
        .await;
        if before != after {
            self.changes += 1;
            self.all[at].changed = self.changes;
            self.count("changed", 1);
        }
        self.all[at].full = after;
    }

    /// Some filters, perhaps none.
    fn filters(&mut self) -> Vec<Filter> {
        let mut all: Vec<Filter> = Vec::new();
        for kind in 0..8 {
            if self.dice.below(4) == 0 {
                all.push(self.filter(kind));
            }
        }
        all
    }

    fn filter(&mut self, kind: usize) -> Filter {
        fn words<W: StringEnum + Copy + PartialEq + 'static>(
            name: &str,
            dice: &mut Dice,
            some: &[W],
        ) -> (String, Vec<W>) {
            let any = [dice.pick(some), dice.pick(some)];
            (format!("{name}={},{}", any[0].as_str(), any[1].as_str()), any.to_vec())
        }
        match kind {
            0 => {
                let (query, any) =
                    words("type", &mut self.dice, &[Type::Server, Type::Laptop, Type::Printer, Type::Other]);
                (query, Box::new(move |full| any.contains(&full.device.r#type)))
            }
            1 => {
                let (query, any) =
                    words("platform", &mut self.dice, &[Platform::Linux, Platform::Windows, Platform::Ios]);
                (query, Box::new(move |full| any.contains(&full.device.platform)))
            }
            2 => {
                let (query, any) = words(
                    "status",
                    &mut self.dice,
                    &[DeviceStatus::Online, DeviceStatus::Offline, DeviceStatus::Stale],
                );
                (query, Box::new(move |full| any.contains(&full.device.status)))
            }
            3 => {
                let (query, any) =
                    words("health", &mut self.dice, &[DeviceHealth::Healthy, DeviceHealth::NeedsAttention]);
                (query, Box::new(move |full| any.contains(&full.device.health)))
            }
            4 => {
                let place = self.organizations.get(self.dice.below(3)).cloned();
                let query = format!("organization_id={}", place.as_deref().unwrap_or("none"));
                (query, Box::new(move |full| full.device.organization_id.map(|id| id.to_string()) == place))
            }
            5 => {
                let any = [self.dice.pick(&TAGS), self.dice.pick(&TAGS)];
                let query = format!("tag={},{}", any[0], any[1]);
                (query, Box::new(move |full| full.device.tags.iter().any(|tag| any.contains(&tag.as_str()))))
            }
            6 => {
                let (name, version) = self.dice.pick(&SOFTWARE);
                let exact = self.dice.below(2) == 0 && !version.is_empty();
                let query = if exact { format!("software={name}@{version}") } else { format!("software={name}") };
                let wanted = move |one: &tenant_control::features::devices::Software| {
                    one.name.eq_ignore_ascii_case(name) && (!exact || one.version.as_deref() == Some(version))
                };
                (query, Box::new(move |full| full.parts.software.iter().any(wanted)))
            }
            _ => {
                let word = self.dice.pick(&["web", "WEB", "0", "01", "pr", "größe", "acme", "1", "d"]);
                let start = word.to_lowercase();
                let has = move |full: &FullDevice| {
                    let texts = [&full.device.hostname, &full.device.display_name];
                    let words = texts.into_iter().flatten().flat_map(|text| text.split([' ', '-', '.']));
                    words.map(str::to_lowercase).any(|word| word.starts_with(&start))
                };
                (format!("q={word}"), Box::new(has))
            }
        }
    }

    async fn ask(&mut self) {
        let filters = self.filters();
        let limit = self.dice.below(7) + 1;
        let mut query: Vec<String> = filters.iter().map(|(query, _)| query.clone()).collect();
        query.push(format!("limit={limit}"));
        let query = query.join("&");
        let wants = |known: &&Known| !known.is_gone && filters.iter().all(|(_, wants)| wants(&known.full));
        let expected: Vec<&str> = self.all.iter().rev().filter(wants).map(|known| known.id.as_str()).collect();
        let (rows, _) = walk(self.server, &self.acme, &query).await;
        assert_eq!(ids(&rows), expected, "{query}");
        let found = rows.len();
        self.count("asked", 1);
        self.count("rows", found);
    }

    /// Everything in the order of changes. What is deleted has no software any more, and is always told.
    async fn follow(&mut self) {
        let filters = self.filters();
        let limit = self.dice.below(7) + 1;
        let mut query: Vec<String> = filters.iter().map(|(query, _)| query.clone()).collect();
        query.push(format!("limit={limit}&updated_since=2000-01-01T00:00:00Z"));
        let query = query.join("&");
        let wants = |known: &&Known| {
            let wanted =
                |(query, wants): &Filter| (known.is_gone && query.starts_with("software")) || wants(&known.full);
            filters.iter().all(wanted)
        };
        let mut expected: Vec<&Known> = self.all.iter().filter(wants).collect();
        expected.sort_by_key(|known| known.changed);
        let (rows, _) = walk(self.server, &self.acme, &query).await;
        assert_eq!(ids(&rows), expected.iter().map(|known| known.id.as_str()).collect::<Vec<_>>(), "{query}");
        for (row, known) in rows.iter().zip(&expected) {
            assert_eq!(row["deleted_at"].is_string(), known.is_gone, "{query}: {row}");
        }
        let stones = expected.iter().filter(|known| known.is_gone).count();
        self.count("followed", 1);
        self.count("tombstones", stones);
    }
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| text(row, "id")).collect()
}
