//! Facts such as the product writes: of tickets that are created and resolved, and of what a second's requests are metered as.

use figures::cells::{
    BORN, BORN_OPEN, ERRORS, KEY, LATENCY_US, ORGANIZATION, PRIORITY, REQUESTS, RESOLUTION_MS, ROUTE, STATUS,
    TICKETS_CREATED, TICKETS_OPEN, TICKETS_RESOLVED,
};
use figures::{Fact, Figures, Group};

use super::members::Members;
use crate::chance::Chance;

/// A ticket without an organization is counted as of none.
pub fn creation_fact(at: i64, priority: &str, organization: Option<&str>) -> Fact {
    let (mut fact, organization) = (Fact { born_at: Some(at), ..Fact::new(at) }, organization.unwrap_or_default());
    fact.add_count(TICKETS_CREATED, 1);
    fact.add_count(TICKETS_OPEN, 1);
    fact.move_count(STATUS, BORN, None, Some("new".to_owned()));
    fact.move_count(PRIORITY, BORN, None, Some(priority.to_owned()));
    fact.move_count(ORGANIZATION, BORN, None, Some(organization.to_owned()));
    fact.group_mut(Group::new(ORGANIZATION, organization)).add_count(BORN_OPEN, 1);
    fact
}

pub fn resolution_fact(born_at: i64, at: i64, organization: &str) -> Fact {
    let mut fact = Fact { born_at: Some(born_at), ..Fact::new(at) };
    fact.add_count(TICKETS_OPEN, -1);
    fact.add_count(TICKETS_RESOLVED, 1);
    fact.add_sample(RESOLUTION_MS, at - born_at);
    fact.move_count(STATUS, BORN, Some("open".to_owned()), Some("resolved".to_owned()));
    fact.group_mut(Group::new(ORGANIZATION, organization)).add_count(BORN_OPEN, -1);
    fact
}

/// The figures of one request, as the meter makes them.
fn request_figures(is_error: bool, latency_us: i64) -> Figures {
    let mut figures = Figures::default();
    figures.add_count(REQUESTS, 1);
    figures.add_count(ERRORS, i64::from(is_error));
    figures.add_sample(LATENCY_US, latency_us);
    figures
}

/// So many requests of a second.
pub fn metered_fact(at: i64, requests: i64, members: &Members, chance: &mut Chance) -> Fact {
    let mut fact = Fact::new(at);
    for _ in 0..requests {
        let one = request_figures(chance.below(50) == 0, chance.wait_ms(4_000));
        let key = members.keys[chance.below(members.keys.len())].to_string();
        let route = members.routes[chance.below(members.routes.len())].as_str();
        for group in [Group::ALL, Group::new(KEY, key), Group::new(ROUTE, route)] {
            fact.group_mut(group).add_figures(&one);
        }
    }
    fact
}
