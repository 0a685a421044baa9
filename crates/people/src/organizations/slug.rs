//! Slugs made from names, for organizations without a given slug.

use std::collections::HashSet;

use search_language::fold::fold_text;

/// The limit of `check_slug` in the kernel.
pub const SLUG_BYTES_MAX: usize = 63;
/// The longest suffix: `-` and five digits, which number every organization of a tenant.
const SUFFIX_BYTES_MAX: usize = 6;
/// The slug of a name without any ASCII letter or digit, also after folding.
const DEFAULT_SLUG: &str = "organization";

/// The letters and digits of a name without accents. Everything between them becomes a single `-`.
pub fn slug_from_name(name: &str) -> String {
    let mut slug = String::new();
    for c in fold_text(name).chars() {
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() == SLUG_BYTES_MAX {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { DEFAULT_SLUG.to_owned() } else { slug.to_owned() }
}

/// The first free slug of `acme-2`, `acme-3` and so on.
pub fn first_free_slug(slug: &str, taken: &HashSet<String>) -> String {
    let numbered = |number: usize| {
        let suffix = format!("-{number}");
        format!("{}{suffix}", truncate_slug(slug, SLUG_BYTES_MAX - suffix.len()))
    };
    // The range has more numbers than there are taken slugs, so one is free.
    (2..taken.len() + 3).map(numbered).find(|slug| !taken.contains(slug)).unwrap_or_default()
}

/// The common prefix of all numbered slugs.
pub fn common_prefix(slug: &str) -> &str {
    truncate_slug(slug, SLUG_BYTES_MAX - SUFFIX_BYTES_MAX)
}

fn truncate_slug(slug: &str, bytes_max: usize) -> &str {
    slug.get(..bytes_max).unwrap_or(slug).trim_end_matches('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_has_the_letters_and_digits_of_the_name() {
        for (name, slug) in [
            ("Globex Inc.", "globex-inc"),
            ("Müller & Söhne GmbH", "muller-sohne-gmbh"),
            ("  --A--  ", "a"),
            ("Straße 7", "strasse-7"),
            ("Łódź Øst", "lodz-ost"),
            ("日本", "organization"),
            ("!", "organization"),
        ] {
            assert_eq!(slug_from_name(name), slug, "{name}");
        }
        assert_eq!(slug_from_name(&"a".repeat(200)), "a".repeat(63));
        assert_eq!(slug_from_name(&format!("{} b", "a".repeat(62))), "a".repeat(62), "it does not end with -");
    }

    #[test]
    fn the_first_number_that_is_free_is_taken_and_has_room() {
        let taken = |slugs: &[&str]| slugs.iter().map(|slug| (*slug).to_owned()).collect::<HashSet<String>>();
        assert_eq!(first_free_slug("acme", &taken(&["acme"])), "acme-2");
        assert_eq!(first_free_slug("acme", &taken(&["acme", "acme-2", "acme-4"])), "acme-3");
        let long = "a".repeat(63);
        let second = format!("{}-2", "a".repeat(61));
        assert_eq!(first_free_slug(&long, &taken(&[&long])), second);
        assert!(second.starts_with(common_prefix(&long)));
        let hyphen = format!("{}-bc", "a".repeat(60));
        let second = first_free_slug(&hyphen, &taken(&[&hyphen]));
        assert_eq!(second, format!("{}-2", "a".repeat(60)), "not two - in a row");
        assert!(second.starts_with(common_prefix(&hyphen)));
        let many: HashSet<String> = (2..10_001).map(|number| format!("acme-{number}")).collect();
        assert_eq!(first_free_slug("acme", &many), "acme-10001");
    }
}
