//! Copies, media and what else the rule asks for.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::device::Told;
use super::{Policy, Target};

/// The 3-2-1-1-0 rule.
pub struct Rule {
    copies: usize,
    media: usize,
    offsite: bool,
    immutable: bool,
    zero_errors: bool,
}

impl Rule {
    pub fn of(policy: &Policy, judged: &[&Told]) -> Rule {
        let counts =
            |target: &&Target| !judged.is_empty() && judged.iter().all(|one| one.targets.contains(target.name));
        let counting: Vec<&Target> = policy.targets.iter().filter(counts).collect();
        let media: BTreeSet<&str> = counting.iter().map(|target| target.media).chain(["disk"]).collect();
        Rule {
            copies: 1 + counting.len(),
            media: media.len(),
            offsite: counting.iter().any(|target| target.offsite),
            immutable: counting.iter().any(|target| target.immutable),
            zero_errors: !judged.is_empty() && judged.iter().all(|one| one.is_verified),
        }
    }

    pub fn lacks(&self) -> Vec<&'static str> {
        let all = [
            ("too_few_copies", self.copies < 3),
            ("too_few_media", self.media < 2),
            ("no_offsite", !self.offsite),
            ("no_immutable", !self.immutable),
        ];
        all.into_iter().filter(|(_, lacks)| *lacks).map(|(code, _)| code).collect()
    }

    pub fn to_json(&self) -> Value {
        let Rule { copies, media, offsite, immutable, zero_errors } = self;
        json!({"copies": copies, "media": media, "offsite": offsite, "immutable": immutable, "zero_errors": zero_errors})
    }
}
