//! What people and programs ask of a list of tickets, with other values each time.

use kernel::base::Timestamp;

use super::data::{DAY_MS, LIVE, Makings, external_id};
use super::load::Loaded;
use crate::chance::Chance;

const MINUTE_MS: i64 = 60_000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Query {
    Newest,
    OpenOfAssignee,
    LiveOfOrganization,
    UrgentOpen,
    Tag,
    OneWord,
    TwoWords,
    UpdatedSince,
    ByUpdate,
    LiveByDueDate,
    ExternalId,
    Number,
    MonthOfOrganization,
    DeepPage,
    OrganizationByUpdate,
    AssigneeByUpdate,
    OrganizationSync,
}

impl Query {
    pub const ALL: [(Query, &'static str); 17] = [
        (Query::Newest, "newest 50"),
        (Query::OpenOfAssignee, "open, one assignee"),
        (Query::LiveOfOrganization, "live, one organization"),
        (Query::UrgentOpen, "open, critical or high"),
        (Query::Tag, "one tag"),
        (Query::OneWord, "q, start of a word"),
        (Query::TwoWords, "q, two words"),
        (Query::UpdatedSince, "updated_since, minutes"),
        (Query::ByUpdate, "sort=-updated_at"),
        (Query::LiveByDueDate, "live, sort=due_at"),
        (Query::ExternalId, "one external_id"),
        (Query::Number, "one number"),
        (Query::MonthOfOrganization, "organization, 30 days"),
        (Query::DeepPage, "a page in the middle"),
        (Query::OrganizationByUpdate, "organization, by update"),
        (Query::AssigneeByUpdate, "assignee, by update"),
        (Query::OrganizationSync, "organization, sync"),
    ];

    /// The query string. What is sought is drawn as the tickets were, so that what is frequent is sought often.
    pub fn spell(self, chance: &mut Chance, loaded: &Loaded, makings: &Makings) -> String {
        let organization = |chance: &mut Chance| &loaded.organizations[makings.organization(chance)];
        let assignee = |chance: &mut Chance| &loaded.technicians[chance.below(loaded.technicians.len())];
        let live = LIVE.join(",");
        match self {
            Query::Newest => "limit=50".to_owned(),
            Query::OpenOfAssignee => format!("status=open&assignee_id={}", assignee(chance)),
            Query::LiveOfOrganization => format!("status={live}&organization_id={}", organization(chance)),
            Query::UrgentOpen => "status=open&priority=critical,high".to_owned(),
            Query::Tag => format!("tag={}", makings.tags[makings.tag(chance)]),
            Query::OneWord => {
                let word = &makings.words[makings.word(chance)];
                format!("q={}", &word[..word.len().min(4 + chance.below(3))])
            }
            Query::TwoWords => two_words(chance, loaded, makings),
            Query::UpdatedSince => {
                let minutes = i64::try_from(chance.below(30)).unwrap_or(0) + 5;
                format!("updated_since={}", time(loaded.end - minutes * MINUTE_MS))
            }
            Query::ByUpdate => "sort=-updated_at".to_owned(),
            Query::LiveByDueDate => format!("status={live}&sort=due_at"),
            Query::ExternalId => format!("external_id={}", external_id(some(chance, loaded.size / 3) * 3)),
            Query::Number => format!("number={}", some(chance, loaded.size)),
            Query::MonthOfOrganization => {
                format!("organization_id={}&created_since={}", organization(chance), time(loaded.end - 30 * DAY_MS))
            }
            // Its second page is the one that counts.
            Query::DeepPage => {
                let number = some(chance, loaded.size * 9 / 10);
                let at = makings.ticket(number, loaded.size, loaded.end).created_at;
                format!("sort=created_at&created_since={}", time(at))
            }
            Query::OrganizationByUpdate => format!("organization_id={}&sort=-updated_at", organization(chance)),
            Query::AssigneeByUpdate => format!("assignee_id={}&sort=-updated_at", assignee(chance)),
            Query::OrganizationSync => {
                format!("organization_id={}&updated_since={}", organization(chance), time(loaded.end - 30 * DAY_MS))
            }
        }
    }
}

/// Two words of one subject, so that there is something to be found.
fn two_words(chance: &mut Chance, loaded: &Loaded, makings: &Makings) -> String {
    let ticket = makings.ticket(some(chance, loaded.size), loaded.size, loaded.end);
    let word = |n: usize| makings.words[ticket.words[n % ticket.words.len()]].as_str();
    let first = chance.below(4);
    format!("q={}+{}", word(first), word(first + 1))
}

/// A number from 1 to this one.
fn some(chance: &mut Chance, most: u32) -> u32 {
    1 + u32::try_from(chance.below(most as usize)).unwrap_or(0)
}

fn time(at: i64) -> String {
    Timestamp::from_millis(at).to_string()
}
