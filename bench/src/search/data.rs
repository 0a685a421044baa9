//! What records are made of: 20,000 words as unequal as those of a language, names, addresses, serial numbers.

use std::collections::HashSet;

use crate::chance::{Chance, Skewed};
use crate::tickets::data::Makings as Tickets;

/// Of which a tenant of usual size has some 4,000.
const WORDS: usize = 20_000;
const CONSONANTS: &[u8] = b"bdfgklmnprstvz";
const VOWELS: &[u8] = b"aeiou";
const SERIAL: &[u8] = b"0123456789BCDFGHJKLMNPQRSTVWXYZ";
const SERIAL_LEN: usize = 8;

const FIRST_NAMES: [&str; 20] = [
    "Anna", "Ben", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karin", "Lukas", "Maria",
    "Noah", "Olga", "Peter", "Rosa", "Simon", "Tessa", "Victor",
];
const SITES: [&str; 8] = ["ber", "ams", "lon", "par", "vie", "zrh", "mad", "osl"];
const KINDS: [(&str, &str); 4] = [("workstation", "ws"), ("laptop", "nb"), ("server", "srv"), ("virtual", "vm")];
const PLATFORMS: [(&str, &str, &str); 4] = [
    ("windows", "Microsoft Windows 11 Pro", "10.0.22631"),
    ("linux", "Debian GNU/Linux 12 (bookworm)", "12.11"),
    ("macos", "macOS 14", "14.6"),
    ("other", "FreeBSD", "14.1"),
];
const MODELS: [(&str, &str); 6] = [
    ("Dell Inc.", "Latitude"),
    ("Dell Inc.", "PowerEdge"),
    ("LENOVO", "ThinkPad"),
    ("HP", "EliteBook"),
    ("Apple Inc.", "MacBookPro"),
    ("VMware, Inc.", "Virtual"),
];
const LEGAL_FORMS: [&str; 5] = ["GmbH", "Ltd", "Inc", "AG", "Group"];

pub struct Makings {
    words: Vec<String>,
    by_word: Skewed,
}

/// Somebody who works at a tenant, or who asks for something.
pub struct Person {
    pub name: String,
    pub email: String,
}

pub struct Machine {
    pub r#type: &'static str,
    pub hostname: String,
    pub platform: &'static str,
    pub os_name: &'static str,
    pub os_version: &'static str,
    pub manufacturer: &'static str,
    pub model: String,
    pub serial_number: String,
    pub ip: String,
    pub mac: String,
}

impl Makings {
    /// The words of a service desk first, which are the frequent ones, and then names that nobody has heard of.
    pub fn new() -> Self {
        let mut words = Tickets::new().words;
        let mut seen: HashSet<String> = words.iter().cloned().collect();
        let mut chance = Chance::new(11);
        while words.len() < WORDS {
            let word = invented(&mut chance);
            if seen.insert(word.clone()) {
                words.push(word);
            }
        }
        Makings { by_word: Skewed::new(words.len(), 1.0), words }
    }

    pub fn word(&self, chance: &mut Chance) -> &str {
        &self.words[self.by_word.draw(chance)]
    }

    /// So many words in a row.
    pub fn text(&self, chance: &mut Chance, count: usize) -> String {
        let mut text = String::with_capacity(count * 9);
        for place in 0..count {
            text.push_str(if place == 0 { "" } else { " " });
            text.push_str(self.word(chance));
        }
        text
    }

    /// A word that is a name: all alike frequent.
    fn name(&self, chance: &mut Chance) -> &str {
        &self.words[self.words.len() / 2 + chance.below(self.words.len() / 2)]
    }

    /// The number makes the address one of its kind.
    pub fn person(&self, chance: &mut Chance, number: i64) -> Person {
        let (first, last) = (FIRST_NAMES[chance.below(FIRST_NAMES.len())], self.name(chance));
        let email = format!("{}.{last}{number}@{}.test", first.to_lowercase(), self.name(chance));
        Person { name: format!("{first} {}", capital(last)), email }
    }

    /// A customer's name.
    pub fn company(&self, chance: &mut Chance) -> String {
        let form = LEGAL_FORMS[chance.below(LEGAL_FORMS.len())];
        format!("{} {} {form}", capital(self.name(chance)), capital(self.name(chance)))
    }

    /// The name of a program.
    pub fn program(&self, chance: &mut Chance, number: i64) -> String {
        format!("{} {} {number}", capital(self.name(chance)), capital(self.word(chance)))
    }

    pub fn machine(chance: &mut Chance, number: i64) -> Machine {
        let (kind, short) = KINDS[chance.pick(&[45, 30, 15])];
        let (platform, os_name, os_version) = PLATFORMS[chance.pick(&[60, 25, 10])];
        let (manufacturer, model) = MODELS[chance.below(MODELS.len())];
        let serial = (0..SERIAL_LEN).map(|_| letter(SERIAL, chance)).collect();
        let low = chance.next();
        let byte = |place: u32| low >> (8 * place) & 255;
        Machine {
            r#type: kind,
            hostname: format!("{}-{short}-{number:05}", SITES[chance.below(SITES.len())]),
            platform,
            os_name,
            os_version,
            manufacturer,
            model: format!("{model} {}", 5_000 + 10 * chance.below(40)),
            serial_number: serial,
            ip: format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255),
            mac: format!("02:fc:{:02x}:{:02x}:{:02x}:{:02x}", byte(0), byte(1), byte(2), byte(3)),
        }
    }
}

/// From 4 to 11 letters.
fn invented(chance: &mut Chance) -> String {
    let mut word = String::new();
    for _ in 0..2 + chance.below(4) {
        word.push(letter(CONSONANTS, chance));
        word.push(letter(VOWELS, chance));
    }
    if chance.below(2) == 0 {
        word.push(letter(CONSONANTS, chance));
    }
    word
}

fn letter(letters: &[u8], chance: &mut Chance) -> char {
    char::from(letters[chance.below(letters.len())])
}

/// As a name is written, of letters that are all ASCII.
pub fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    format!("{}{rest}", first.to_uppercase())
}
