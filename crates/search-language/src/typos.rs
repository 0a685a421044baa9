//! How many typos a word may have. The distance itself is measured elsewhere.

/// The shortest word that may have a typo: with one letter changed, three letters begin almost every word.
const CHARACTERS_MIN: usize = 4;
/// The shortest word that may have two typos, as the contract says.
const CHARACTERS_FOR_TWO: usize = 8;
/// A word with a digit may have a typo if it has this many characters, and this many letters among them.
const MIXED_CHARACTERS_MIN: usize = 5;
const MIXED_LETTERS_MIN: usize = 3;

/// The shortest prefix that may have a typo: with one letter changed, four letters begin many words that nobody means.
const CHARACTERS_OF_A_START: usize = 6;
/// The typo automaton grows with every byte of the word and every distinct character. Longer words match without typos.
const BYTES_MAX: usize = 32;
const WIDE_BYTES_MAX: usize = 24;

/// Whether a word may also match a token's beginning with typos.
pub fn starts_may_have_typos(word: &str) -> bool {
    word.chars().count() >= CHARACTERS_OF_A_START
}

/// How many typos a folded word may have: none below 4 characters, one from 4, two from 8.
///
/// Words with digits are stricter. `42`, `10.0.0.5`, `v2` and `7QX19` are numbers, versions and serials, where a changed
/// digit means something else, so they match exactly. Words that are mostly letters (`server01`, `laptop7`) may have one
/// typo, never two, however long: a serial of ten characters with two changed is another serial. Exact matches should rank
/// first, since `server02` is within one typo of `server01`.
pub fn allowed_typos(word: &str) -> u8 {
    let characters = word.chars().count();
    let letters = word.chars().filter(|c| c.is_alphabetic()).count();
    if word.len() > if word.is_ascii() { BYTES_MAX } else { WIDE_BYTES_MAX } {
        return 0;
    }
    if letters < characters {
        return u8::from(characters >= MIXED_CHARACTERS_MIN && letters >= MIXED_LETTERS_MIN);
    }
    match characters {
        0..CHARACTERS_MIN => 0,
        CHARACTERS_MIN..CHARACTERS_FOR_TWO => 1,
        CHARACTERS_FOR_TWO.. => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_word_may_have_more_typos() {
        for (word, typos) in [
            ("", 0),
            ("a", 0),
            ("pc", 0),
            ("lan", 0),
            ("disk", 1),
            ("printer", 1),
            ("printers", 2),
            ("münchen", 1),
            ("東", 0),
        ] {
            assert_eq!(allowed_typos(word), typos, "{word}");
        }
    }

    #[test]
    fn a_word_with_digits_is_mistyped_only_where_letters_carry_it() {
        for (word, typos) in [
            ("42", 0),
            ("v2", 0),
            ("win7", 0),
            ("7qx19", 0),
            ("12345678", 0),
            ("win11", 1),
            ("server01", 1),
            ("fileserver2022", 1),
        ] {
            assert_eq!(allowed_typos(word), typos, "{word}");
        }
    }
}
