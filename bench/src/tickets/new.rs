//! A ticket to be made, for all who make it: as the body of a request, or as what is stored.

use std::collections::BTreeSet;

use serde_json::json;

use super::data::{Makings, PRIORITIES};
use crate::chance::Chance;

pub struct New {
    pub subject: String,
    pub priority: usize,
    pub tag: String,
    pub organization: Option<String>,
}

impl New {
    /// Every other one is of an organization.
    pub fn nth(n: usize, makings: &Makings, organizations: &[String]) -> Self {
        let mut chance = Chance::new(n as u64);
        let words: Vec<&str> = (0..4 + n % 3).map(|_| makings.words[makings.word(&mut chance)].as_str()).collect();
        New {
            subject: words.join(" "),
            priority: chance.below(PRIORITIES.len()),
            tag: makings.tags[makings.tag(&mut chance)].clone(),
            organization: n.is_multiple_of(2).then(|| organizations[chance.below(organizations.len())].clone()),
        }
    }

    pub fn body(&self) -> String {
        let mut body = json!({"subject": self.subject, "priority": PRIORITIES[self.priority], "tags": [self.tag]});
        if let Some(id) = &self.organization {
            body["organization_id"] = json!(id);
        }
        body.to_string()
    }

    /// As the product spells them.
    pub fn terms(&self) -> BTreeSet<String> {
        let mut terms = BTreeSet::from([
            "s:new".to_owned(),
            format!("+p:{}", PRIORITIES[self.priority]),
            "+t:incident".to_owned(),
            "+a:none".to_owned(),
            format!("+o:{}", self.organization.as_deref().unwrap_or("none")),
            format!("+g:{}", self.tag),
        ]);
        terms.extend(self.subject.split(' ').map(|word| format!("+w:{word}")));
        terms
    }

    /// As long as the event that tells of it.
    pub fn event(&self) -> String {
        let id = "01jd8z6v2mfkpb7h3q9xw5t4ra";
        let at = "2026-11-15T08:00:00.000Z";
        let ticket = json!({
            "id": format!("tkt_{id}"), "number": 123_456, "subject": self.subject, "description": null,
            "type": "incident", "status": "new", "priority": PRIORITIES[self.priority],
            "organization_id": self.organization, "requester": null, "assignee_id": null, "team": null,
            "category": null, "tags": [self.tag], "custom_fields": {}, "device_ids": [], "external_id": null,
            "source": "api", "due_at": null, "first_response_due_at": null, "first_responded_at": null,
            "resolution_due_at": null, "resolved_at": null, "closed_at": null, "sla_state": "none",
            "comment_count": 0, "version": 1, "created_at": at, "updated_at": at,
        });
        json!({
            "id": format!("evt_{id}"), "type": "ticket.created", "timestamp": at, "tenant_id": format!("ten_{id}"),
            "sequence": 123_456, "data": ticket,
        })
        .to_string()
    }
}
