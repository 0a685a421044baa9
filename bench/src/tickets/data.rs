//! Tickets such as a large tenant has, each made from its number alone, so that nothing has to be remembered.
//!
//! As many are made a day whatever the size: a larger tenant is an older one, and what is recent looks the same in all.
//! Most tickets are done. The live ones are recent, but for some that nobody looks after.

use super::vocabulary;
use crate::chance::{Chance, Skewed, scaled};

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
