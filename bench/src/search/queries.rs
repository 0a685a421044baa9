//! What people type into a search box, with other values each time, all of them of the tenant that is asked.

use rusqlite::Connection;

use crate::chance::Chance;
use crate::harness::Outcome;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Query {
    Prefix3,
    Prefix5,
    OneTypo,
    TwoTypos,
    Phrase,
    TwoWords,
    Status,
    Serial,
    Organization,
    Hostname,
    Email,
    Mac,
    Number,
}

/// One question, for the index and for SQL.
pub struct Question {
    pub q: String,
    pub sought: Sought,
}

/// What whoever asks has in mind, which SQL is told.
pub enum Sought {
    /// Texts, all of which stand somewhere in a record.
    Text(Vec<String>),
    OpenTickets,
    Serial(String),
    Organization(String),
    Number(i64),
}

impl Query {
    pub const ALL: [(Query, &'static str); 13] = [
        (Query::Prefix3, "first 3 letters"),
        (Query::Prefix5, "first 5 letters"),
        (Query::OneTypo, "one typo"),
        (Query::TwoTypos, "two typos"),
        (Query::Phrase, "phrase"),
        (Query::TwoWords, "two words"),
        (Query::Status, "status:open type:ticket"),
        (Query::Serial, "serial:"),
        (Query::Organization, "org:"),
        (Query::Hostname, "hostname"),
        (Query::Email, "e-mail"),
        (Query::Mac, "hardware address"),
        (Query::Number, "#42"),
    ];

    /// Whether SQL has to look at every row of the tenant; for the rest the tables have indexes of their own.
    pub fn is_scan(self) -> bool {
        !matches!(self, Query::Status | Query::Organization | Query::Number)
    }

    /// Drawn from the tenant's own records, so that what is frequent is sought often. Of a typo SQL is told the right word,
    /// which it could not find otherwise.
    pub fn spell(self, chance: &mut Chance, known: &Known) -> Question {
        let text = |q: String, meant: &[&str]| {
            let meant = meant.iter().map(|one| (*one).to_owned()).collect();
            Question { q, sought: Sought::Text(meant) }
        };
        match self {
            Query::Prefix3 => {
                let start = &any(chance, &known.words)[..3];
                text(start.to_owned(), &[start])
            }
            Query::Prefix5 => {
                let start = &any(chance, &known.words)[..5];
                text(start.to_owned(), &[start])
            }
            Query::OneTypo => {
                let word = any(chance, &known.middling);
                let place = chance.below(word.len());
                text(mistyped(chance, word, place), &[word])
            }
            Query::TwoTypos => {
                let word = any(chance, &known.long);
                let half = word.len() / 2;
                let (first, second) = (chance.below(half), half + chance.below(word.len() - half));
                let once = mistyped(chance, word, first);
                text(mistyped(chance, &once, second), &[word])
            }
            Query::Phrase => {
                let subject: Vec<&str> = any(chance, &known.subjects).split(' ').collect();
                let place = chance.below(subject.len() - 1);
                let pair = subject[place..place + 2].join(" ");
                text(format!("\"{pair}\""), &[pair.as_str()])
            }
            Query::TwoWords => {
                let subject: Vec<&str> = any(chance, &known.subjects).split(' ').collect();
                let (first, last) = (subject[0], subject[subject.len() - 1]);
                text(format!("{first} {last}"), &[first, last])
            }
            Query::Status => Question { q: "status:open type:ticket".to_owned(), sought: Sought::OpenTickets },
            Query::Serial => {
                let serial = any(chance, &known.serials);
                Question { q: format!("serial:{serial}"), sought: Sought::Serial(serial.to_owned()) }
            }
            Query::Organization => {
                let name = any(chance, &known.organizations);
                Question { q: format!("org:\"{name}\""), sought: Sought::Organization(name.to_owned()) }
            }
            Query::Hostname => {
                let name = any(chance, &known.hostnames);
                text(name.to_owned(), &[name])
            }
            Query::Email => {
                let address = any(chance, &known.emails);
                text(address.to_owned(), &[address])
            }
            // In another notation than the stored one, as labels have it.
            Query::Mac => {
                let mac = any(chance, &known.macs);
                text(mac.replace(':', "-").to_uppercase(), &[mac])
            }
            Query::Number => {
                let number = known.numbers[chance.below(known.numbers.len())];
                Question { q: format!("#{number}"), sought: Sought::Number(number) }
            }
        }
    }
}

fn any<'a>(chance: &mut Chance, all: &'a [String]) -> &'a str {
    &all[chance.below(all.len())]
}

/// With another letter in one place. Words here are ASCII.
fn mistyped(chance: &mut Chance, word: &str, place: usize) -> String {
    let other = 1 + chance.below(25);
    let change = |(at, letter): (usize, char)| {
        let next = usize::from(u8::try_from(letter).unwrap_or(b'a').saturating_sub(b'a')) + other;
        if at == place { char::from(b'a' + u8::try_from(next % 26).unwrap_or(0)) } else { letter }
    };
    word.chars().enumerate().map(change).collect()
}

/// What a tenant can be asked for. Nothing of it is empty.
pub struct Known {
    /// In small letters; at least four words each.
    subjects: Vec<String>,
    numbers: Vec<i64>,
    /// Words of subjects, as often as they come: at least 6 letters.
    words: Vec<String>,
    /// Of 5 to 7, which may have one typo.
    middling: Vec<String>,
    /// Of 8 and more, which may have two.
    long: Vec<String>,
    hostnames: Vec<String>,
    serials: Vec<String>,
    macs: Vec<String>,
    emails: Vec<String>,
    organizations: Vec<String>,
}

impl Known {
    pub fn read(connection: &Connection, tenant: &str) -> Outcome<Self> {
        let texts = |sql: &str| -> rusqlite::Result<Vec<String>> {
            connection.prepare_cached(sql)?.query_map([tenant], |row| row.get(0))?.collect()
        };
        let subjects = texts("SELECT lower(subject) FROM tickets WHERE tenant_id = ?1 ORDER BY number")?;
        let of_letters = |least: usize, most: usize| -> Vec<String> {
            let words = subjects.iter().flat_map(|subject| subject.split(' '));
            words.filter(|word| (least..=most).contains(&word.len())).map(str::to_owned).collect()
        };
        let (words, middling, long) = (of_letters(6, usize::MAX), of_letters(5, 7), of_letters(8, usize::MAX));
        let numbers: Vec<i64> = connection
            .prepare_cached("SELECT number FROM tickets WHERE tenant_id = ?1 ORDER BY number")?
            .query_map([tenant], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let known = Known {
            words,
            middling,
            long,
            numbers,
            hostnames: texts("SELECT hostname FROM devices WHERE tenant_id = ?1 ORDER BY number")?,
            serials: texts("SELECT serial_number FROM devices WHERE tenant_id = ?1 ORDER BY number")?,
            macs: texts("SELECT primary_mac FROM devices WHERE tenant_id = ?1 ORDER BY number")?,
            emails: texts("SELECT email FROM users WHERE tenant_id = ?1 ORDER BY id")?,
            organizations: texts("SELECT name FROM organizations WHERE tenant_id = ?1 ORDER BY id")?,
            subjects,
        };
        let lists = [
            &known.subjects,
            &known.words,
            &known.middling,
            &known.long,
            &known.hostnames,
            &known.serials,
            &known.macs,
            &known.emails,
            &known.organizations,
        ];
        if known.numbers.is_empty() || lists.iter().any(|list| list.is_empty()) {
            return Err(format!("{tenant} has too little to be asked for").into());
        }
        Ok(known)
    }
}
