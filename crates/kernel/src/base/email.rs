//! Checks the form of an e-mail address. Only a message can prove that the mailbox exists.

use super::hidden::is_hidden;

/// The limits of mail for an address, for the part before the `@`, and for each label of the domain.
const EMAIL_BYTES_MAX: usize = 254;
const NAME_BYTES_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 63;

/// One `@`, visible characters before it, and a host or domain name after it, in any script. The check is no stricter,
/// because machines send from hosts with `_`, and some mailboxes have dots where the standard forbids them.
pub fn is_email(text: &str) -> bool {
    let Some((name, domain)) = text.split_once('@') else { return false };
    text.len() <= EMAIL_BYTES_MAX
        && (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(|c| if c.is_ascii() { is_atom(c) } else { is_seen(c) })
        && domain.split('.').all(is_label)
}

/// The characters that mail allows before the `@` without quotes.
fn is_atom(c: char) -> bool {
    c.is_ascii_alphanumeric() || ".!#$%&'*+-/=?^_`{|}~".contains(c)
}

fn is_seen(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !is_hidden(c)
}

/// A label contains no `@`, so the address has only one.
fn is_label(label: &str) -> bool {
    // A label in another script can be longer than its Punycode form.
    let fits = !label.is_empty() && (label.len() <= LABEL_BYTES_MAX || !label.is_ascii());
    let is_plain = |c: char| match c {
        // IDNA treats these as dots.
        '\u{3002}' | '\u{ff0e}' | '\u{ff61}' => false,
        c if c.is_ascii() => c.is_ascii_alphanumeric() || "-_".contains(c),
        c => is_seen(c),
    };
    fits && label.chars().all(is_plain) && !label.starts_with('-') && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_name_at_a_domain() {
        let longest = format!("{}@{}", "a".repeat(64), ["b".repeat(63), "c".repeat(63), "d".repeat(61)].join("."));
        assert_eq!(longest.len(), EMAIL_BYTES_MAX);
        for text in [
            "a@acme.test",
            "admin@localhost",
            "Ann.O'Neil+tickets@mail.acme.test",
            "a-_!#$%&*/=?^`{|}~@a-1.example",
            "用户@例子.广告",
            "ann@münchen.de",
            "राम@हिन्दी.भारत",
            "info@paral·lel.test",
            "root@web_01",
            "a..b.@acme.test",
            "a@1.2",
            &longest,
        ] {
            assert!(is_email(text), "{text}");
        }
    }

    #[test]
    fn what_nobody_can_write_to_or_nobody_sees_is_none() {
        let long_label = format!("a@{}.test", "b".repeat(64));
        let long_name = format!("{}@b", "a".repeat(65));
        let long = format!("a@{}.{}.{}.{}", "b".repeat(63), "c".repeat(63), "d".repeat(63), "e".repeat(61));
        for text in [
            "",
            "a",
            "@",
            "a@",
            "@b",
            "a@b@c",
            "a@@b",
            "a@b..c",
            "a@b.",
            "a@.b",
            "a@.",
            "a@-b.c",
            "a@b-.c",
            "a@b c",
            "a b@c",
            "a@b,c",
            "a@[127.0.0.1]",
            "a@b/c",
            "a\n@b",
            "a\0@b",
            "a@b\t",
            "a\u{202e}b@c",
            "a\u{200b}@b",
            "a@b\u{200d}c",
            "a@\u{3164}",
            "\u{feff}a@b",
            "a@b\u{34f}",
            &long_name,
            &long_label,
            "a@b。c",
            "<b>@c",
            "a,b@c",
            "mailto:a@c",
            "a\u{fffe}b@c",
            &long,
        ] {
            assert!(!is_email(text), "{text:?}");
        }
    }
}
