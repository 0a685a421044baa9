//! How a hit is shown: with the places where its words were found.

use std::collections::HashMap;

use levenshtein_automata::DFA;

use super::documents::Kind;
use super::index::{self, fewest_edits, typos};
use super::language::highlight::snippet;
use super::language::typos::typos_of;
use super::language::{Clause, Query};
use super::{Highlight, Hit};

/// Places that are shown of one hit, and about how long each is.
const HIGHLIGHTS_MAX: usize = 3;
const SNIPPET_CHARS_MAX: usize = 160;

/// What makes a word of a text one that was looked for.
enum Mark {
    Whole(String),
    Start(String),
    Typo(DFA),
}

/// What was looked for, to be marked where it was found.
pub struct Marks(Vec<Mark>);

impl Marks {
    pub fn of(query: &Query) -> Self {
        let mut marks = Vec::new();
        for clause in &query.must {
            match clause {
                Clause::Words { tokens, .. } => {
                    let Some((last, before)) = tokens.split_last() else { continue };
                    marks.extend(before.iter().cloned().map(Mark::Whole));
                    marks.push(Mark::Start(last.clone()));
                    if before.is_empty() && typos_of(last) > 0 {
                        marks.push(Mark::Typo(typos(last, typos_of(last))));
                    }
                }
                Clause::Phrase(tokens) => marks.extend(tokens.iter().cloned().map(Mark::Whole)),
                Clause::Number(_) | Clause::Field { .. } => {}
            }
        }
        Marks(marks)
    }

    fn has(&self, token: &str) -> bool {
        self.0.iter().any(|mark| match mark {
            Mark::Whole(word) => token == word,
            Mark::Start(word) => token.starts_with(word.as_str()),
            Mark::Typo(word) => fewest_edits(word, token.as_bytes()).is_some(),
        })
    }

    /// The first places in these texts.
    pub fn highlights(&self, texts: &[(String, String)]) -> Vec<Highlight> {
        let highlight = |(field, text): &(String, String)| {
            let snippet = snippet(text, |token| self.has(token), SNIPPET_CHARS_MAX)?;
            Some(Highlight { field: field.clone(), snippet })
        };
        texts.iter().filter_map(highlight).take(HIGHLIGHTS_MAX).collect()
    }
}

/// A hit as it is answered.
pub fn hit(base_url: &str, marks: &Marks, found: index::Hit, installed: &HashMap<String, i64>) -> Hit {
    let index::Hit { place, kind, shown } = found;
    let subtitle = match (kind, installed.get(&shown.id)) {
        (Kind::Software, Some(1)) => "on 1 device".to_owned(),
        (Kind::Software, devices) => format!("on {} devices", devices.copied().unwrap_or_default()),
        _ => shown.subtitle,
    };
    Hit {
        r#type: kind,
        highlights: marks.highlights(&shown.texts),
        id: shown.id,
        title: shown.title,
        subtitle,
        organization_id: shown.organization_id,
        score: place.points(),
        url: format!("{base_url}{}", shown.url),
    }
}
