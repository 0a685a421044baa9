//! What rows of sums hold: figures of every family, in the product's own encoding.
//!
//! To draw a billion values would take an hour. So a few thousand are drawn for a body and then doubled until they are as many, and
//! of each kind of row there are a few bodies, of which every row has one. What is read and decoded is as large as it would be.

use figures::cells::{
    BACKUPS_FAILED, BACKUPS_MISSED, BACKUPS_SUCCEEDED, BACKUPS_WARNING, BORN, BORN_OPEN, DELIVERED, DELIVERIES_FAILED,
    DELIVERY_LAG_MS, DEVICES, DEVICES_ADDED, DEVICES_REMOVED, ERRORS, FIRST_RESPONSE_MS, LATENCY_US, LEVELS,
    ORGANIZATION, PRIORITY, REQUESTS, RESOLUTION_MS, RUN_DURATION_MS, RUNS, RUNS_CANCELLED, RUNS_FAILED,
    RUNS_SUCCEEDED, SEARCH_LATENCY_US, SEARCHES, SEARCHES_WITHOUT_RESULT, SLA_MET, SLA_MISSED, SPEND_BEFORE_CHANGE,
    SPEND_RATE, STATUS, THROTTLED, TICKETS_CREATED, TICKETS_RESOLVED,
};
use figures::{Cell, Dimension, Figures, Group, Samples, entries_to_bytes};
use kernel::base::{DAY_MS, HOUR_MS, SECOND_MS};

use super::grain::{Grain, part_of_day};
use crate::chance::Chance;
use crate::tickets::data::PRIORITIES;

/// Bodies of one kind of row.
const POOL: usize = 32;
/// Values that are drawn for a body; enough to fill nearly all bins that so wide a distribution has.
const DRAWN_MAX: i64 = 4_000;
/// An hour of a machine for 5 cents, in millionths.
const RATE: i64 = 50_000;

const STATUSES: [&str; 8] = ["new", "open", "in_progress", "pending", "on_hold", "resolved", "closed", "cancelled"];

/// How many for each hundred tickets.
const BESIDE_TICKETS: [(Cell, i64); 14] = [
    (TICKETS_CREATED, 100),
    (TICKETS_RESOLVED, 95),
    (SLA_MET, 60),
    (SLA_MISSED, 5),
    (BACKUPS_SUCCEEDED, 200),
    (BACKUPS_WARNING, 6),
    (BACKUPS_FAILED, 4),
    (BACKUPS_MISSED, 2),
    (RUNS, 50),
    (RUNS_SUCCEEDED, 47),
    (RUNS_FAILED, 2),
    (RUNS_CANCELLED, 1),
    (DELIVERED, 300),
    (DELIVERIES_FAILED, 3),
];
/// The same of values, and their mean.
const VALUES_BESIDE_TICKETS: [(Cell, i64, i64); 4] = [
    (FIRST_RESPONSE_MS, 80, HOUR_MS),
    (RESOLUTION_MS, 95, DAY_MS),
    (RUN_DURATION_MS, 50, 2 * SECOND_MS),
    (DELIVERY_LAG_MS, 300, 80),
];
const LATENCY_MEAN_US: i64 = 4_000;

/// What happens in a day.
#[derive(Clone, Copy)]
pub struct DailyVolume {
    pub tickets: i64,
    pub requests: i64,
}

impl DailyVolume {
    /// Figures of every family.
    pub fn all_figures(self, grain: Grain, chance: &mut Chance) -> Figures {
        let tickets = part_of_day(grain, self.tickets);
        let mut figures = usage_figures(part_of_day(grain, self.requests), chance);
        let searches = part_of_day(grain, self.requests / 20);
        figures.add_count(SEARCHES, searches);
        figures.add_count(SEARCHES_WITHOUT_RESULT, searches / 10);
        add_values(&mut figures, SEARCH_LATENCY_US, searches, LATENCY_MEAN_US / 2, chance);
        for (cell, percent) in BESIDE_TICKETS {
            figures.add_count(cell, tickets * percent / 100);
        }
        for (cell, percent, mean) in VALUES_BESIDE_TICKETS {
            add_values(&mut figures, cell, tickets * percent / 100, mean, chance);
        }
        for level in LEVELS {
            figures.add_count(level, 1 + chance.below(3) as i64);
        }
        figures.add_count(DEVICES_ADDED, 2 + chance.below(3) as i64);
        figures.add_count(DEVICES_REMOVED, 1);
        figures
    }

    /// What the platform sums of each tenant.
    pub fn tenant_figures(self, grain: Grain, chance: &mut Chance) -> Figures {
        let mut figures = Figures::default();
        figures.add_count(REQUESTS, part_of_day(grain, self.requests) + chance.below(10) as i64);
        figures.add_count(TICKETS_CREATED, part_of_day(grain, self.tickets));
        figures.add_count(DEVICES, chance.below(3) as i64);
        figures
    }

    /// The tickets that were created in one of a grain, by how they stand.
    pub fn cohort_body(self, grain: Grain, organizations: &[String], chance: &mut Chance) -> Vec<u8> {
        let tickets = part_of_day(grain, self.tickets).max(1);
        let mut entries: Vec<(Group, Figures)> = Vec::new();
        let by_word: [(Dimension, &[&str]); 2] = [(STATUS, &STATUSES), (PRIORITY, &PRIORITIES)];
        for (dimension, words) in by_word {
            for word in words {
                entries.push(counted(dimension, word, &[(BORN, tickets / words.len() as i64 + 1)]));
            }
        }
        for organization in organizations {
            let born = 1 + chance.below(2) as i64 + tickets / organizations.len() as i64;
            entries.push(counted(ORGANIZATION, organization, &[(BORN, born), (BORN_OPEN, 1)]));
        }
        entries_to_bytes(&entries)
    }
}

fn counted(dimension: Dimension, member: &str, counts: &[(Cell, i64)]) -> (Group, Figures) {
    let mut figures = Figures::default();
    for (cell, count) in counts {
        figures.add_count(*cell, *count);
    }
    (Group::new(dimension, member), figures)
}

/// So many requests.
pub fn usage_figures(requests: i64, chance: &mut Chance) -> Figures {
    let mut figures = Figures::default();
    figures.add_count(REQUESTS, requests);
    figures.add_count(ERRORS, requests / 50);
    figures.add_count(THROTTLED, requests / 200);
    add_values(&mut figures, LATENCY_US, requests, LATENCY_MEAN_US, chance);
    figures
}

/// Machines that began and ended, and one more than ended.
pub fn spend_figures(grain: Grain, _: &mut Chance) -> Figures {
    let mut figures = Figures::default();
    figures.add_count(SPEND_RATE, RATE);
    figures.add_count(SPEND_BEFORE_CHANGE, RATE * grain.length_ms() / SECOND_MS / 2);
    figures
}

fn add_values(figures: &mut Figures, cell: Cell, count: i64, mean: i64, chance: &mut Chance) {
    let (mut drawn, mut doublings) = (count, 0);
    while drawn > DRAWN_MAX {
        drawn /= 2;
        doublings += 1;
    }
    let mut values = Samples::default();
    for _ in 0..drawn {
        values.add_value(chance.wait_ms(mean));
    }
    for _ in 0..doublings {
        let half = values.clone();
        values.add_all(&half);
    }
    figures.add_samples(cell, &values);
}

/// What a row of sums holds.
pub struct RollupBody {
    pub summary: Vec<u8>,
    pub samples: Vec<u8>,
}

impl RollupBody {
    pub fn of(figures: &Figures) -> Self {
        RollupBody { summary: figures.summary_bytes(), samples: figures.samples_bytes() }
    }
}

/// A few bodies for many rows.
pub struct BodyPool<T>(Vec<T>);

impl<T> BodyPool<T> {
    pub fn make(chance: &mut Chance, make: impl Fn(&mut Chance) -> T) -> Self {
        BodyPool((0..POOL).map(|_| make(chance)).collect())
    }

    pub fn draw(&self, chance: &mut Chance) -> &T {
        &self.0[chance.below(self.0.len())]
    }
}
