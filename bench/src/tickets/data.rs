//! Tickets such as a large tenant has, each made from its number alone, so that nothing has to be remembered.
//!
//! As many are made a day whatever the size: a larger tenant is an older one, and what is recent looks the same in all.
//! Most tickets are done. The live ones are recent, but for some that nobody looks after.

use super::vocabulary;

/// Ten million in five years.
pub const EVERY_MS: i64 = 15_768;
pub const DAY_MS: i64 = 86_400_000;
pub const TECHNICIANS: usize = 200;
pub const ORGANIZATIONS: usize = 500;
pub const TAGS: usize = 300;

pub const LIVE: [&str; 5] = ["new", "open", "in_progress", "pending", "on_hold"];
pub const DONE: [&str; 3] = ["closed", "resolved", "cancelled"];
pub const PRIORITIES: [&str; 4] = ["low", "medium", "high", "critical"];
pub const TYPES: [&str; 5] = ["incident", "service_request", "problem", "change", "task"];
const TAG_NAMES: [&str; 10] =
    ["printer", "network", "vip", "onboarding", "licence", "hardware", "security", "backup", "mobile", "project"];

/// Numbers that look like chance and are the same in every run.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, and without, 1.
    pub fn share(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap_or(0)) / 4_294_967_296.0
    }

    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count.max(1) as u64).unwrap_or(0)
    }

    /// Which of several, the first being given how likely each is in hundredths.
    pub fn pick(&mut self, hundredths: &[usize]) -> usize {
        let mut at = self.below(100);
        for (place, likely) in hundredths.iter().enumerate() {
            if at < *likely {
                return place;
            }
            at -= likely;
        }
        hundredths.len()
    }

    /// With this mean, as waits are.
    fn wait_ms(&mut self, mean_ms: i64) -> i64 {
        let longest = 40.0;
        let waits = -(1.0 - self.share()).ln();
        scaled(mean_ms, waits.min(longest))
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.below(place + 1));
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "times of a few years in milliseconds"
)]
fn scaled(ms: i64, by: f64) -> i64 {
    (ms as f64 * by) as i64
}

/// The first of many are frequent, the last are rare.
pub struct Skewed(Vec<f64>);

impl Skewed {
    pub fn new(count: usize, exponent: f64) -> Self {
        let mut total = 0.0;
        let sums = (1..=count).map(|rank| {
            total += f64::from(u32::try_from(rank).unwrap_or(u32::MAX)).powf(-exponent);
            total
        });
        Skewed(sums.collect())
    }

    pub fn draw(&self, chance: &mut Chance) -> usize {
        let total = self.0.last().copied().unwrap_or(1.0);
        let at = chance.share() * total;
        self.0.partition_point(|sum| *sum <= at).min(self.0.len() - 1)
    }
}

pub struct Ticket {
    pub live: bool,
    pub status: &'static str,
    pub priority: usize,
    pub r#type: usize,
    pub organization: Option<usize>,
    pub assignee: Option<usize>,
    pub tags: Vec<usize>,
    pub words: Vec<usize>,
    pub external: bool,
    pub created_at: i64,
    pub updated_at: i64,
    pub due_at: Option<i64>,
    /// For what nothing is sought by.
    pub other: u64,
}

/// What tickets are made of.
pub struct Makings {
    pub words: Vec<String>,
    pub tags: Vec<String>,
    by_word: Skewed,
    by_tag: Skewed,
    by_organization: Skewed,
}

impl Makings {
    pub fn new() -> Self {
        let words = vocabulary::words();
        let tags = (0..TAGS).map(|n| match TAG_NAMES.get(n) {
            Some(name) => (*name).to_owned(),
            None => format!("site-{n}"),
        });
        Makings {
            by_word: Skewed::new(words.len(), 1.0),
            by_tag: Skewed::new(TAGS, 1.0),
            by_organization: Skewed::new(ORGANIZATIONS, 0.8),
            tags: tags.collect(),
            words,
        }
    }

    pub fn word(&self, chance: &mut Chance) -> usize {
        self.by_word.draw(chance)
    }

    pub fn tag(&self, chance: &mut Chance) -> usize {
        self.by_tag.draw(chance)
    }

    pub fn organization(&self, chance: &mut Chance) -> usize {
        self.by_organization.draw(chance)
    }

    /// One of `size` tickets, of which the last was made at `end`.
    pub fn ticket(&self, number: u32, size: u32, end: i64) -> Ticket {
        let mut chance = Chance::new(u64::from(number));
        let age = size - number;
        let created_at = end - i64::from(age) * EVERY_MS - i64::try_from(chance.below(10_000)).unwrap_or(0);
        let live = chance.share() < 0.9 * (-f64::from(age) / 3_000.0).exp() + 0.000_1;
        let status = if live { LIVE[chance.pick(&[25, 25, 25, 15])] } else { DONE[chance.pick(&[88, 6])] };
        // A day and a bit until it is done with; what would still be open by then was quick.
        let worked = chance.wait_ms(DAY_MS);
        let left = end - created_at;
        let worked = if worked < left { worked } else { scaled(left, chance.share()) };
        let due = chance.below(100) < 20;
        let mut words: Vec<usize> = (0..4 + chance.below(3)).map(|_| self.word(&mut chance)).collect();
        words.dedup();
        let mut tags: Vec<usize> = (0..chance.pick(&[30, 50])).map(|_| self.tag(&mut chance)).collect();
        tags.dedup();
        Ticket {
            live,
            status,
            priority: chance.pick(&[25, 55, 15]),
            r#type: chance.pick(&[55, 30, 3, 5]),
            organization: (chance.below(100) < 95).then(|| self.organization(&mut chance)),
            assignee: (status != "new" || chance.below(100) < 30).then(|| chance.below(TECHNICIANS)),
            tags,
            words,
            external: number.is_multiple_of(3),
            created_at,
            updated_at: created_at + worked,
            due_at: due.then(|| created_at + DAY_MS + chance.wait_ms(5 * DAY_MS)),
            other: chance.next(),
        }
    }
}

pub fn external_id(number: u32) -> String {
    format!("PSA-{number}")
}
