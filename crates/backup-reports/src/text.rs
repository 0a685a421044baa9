//! Turns a line of output into a detail: one short line without control characters, terminal sequences and credentials.

/// How long a detail is at most: about two lines on a page.
pub const DETAIL_CHARS_MAX: usize = 300;

/// How much of a line is looked at. More than a detail, because masking shortens; what follows says nothing new.
const LINE_CHARS_MAX: usize = 4_000;

const MASK: &str = "***";

/// What stands before a secret, in any case: `RESTIC_PASSWORD=…`, `--passphrase=…`, `?sig=…`.
const SECRET_NAMES: [&str; 8] =
    ["password=", "passphrase=", "passwd=", "secret=", "access_key=", "token=", "signature=", "sig="];

/// A line as it may be shown, but for its length.
pub fn clean_line(line: &str) -> String {
    let plain = strip_control(line);
    mask_options(&mask_urls(&plain.text, plain.is_cut)).trim().to_owned()
}

pub fn clean_detail(text: &str) -> String {
    truncate(&clean_line(text), DETAIL_CHARS_MAX)
}

pub fn truncate(text: &str, chars_max: usize) -> String {
    if text.chars().nth(chars_max).is_none() {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(chars_max.saturating_sub(1)).collect();
    short.push('…');
    short
}

struct PlainText {
    text: String,
    is_cut: bool,
}

/// Line breaks and tabs become a space; terminal sequences such as `ESC [ 2 K` and other control characters go, and so
/// do the characters that turn the direction of a text around.
fn strip_control(line: &str) -> PlainText {
    let mut text = String::new();
    let mut characters = line.chars();
    let mut kept = 0;
    while let Some(character) = characters.next() {
        if kept == LINE_CHARS_MAX {
            return PlainText { text, is_cut: true };
        }
        match character {
            '\u{1b}' => skip_terminal_sequence(&mut characters),
            '\n' | '\r' | '\t' => text.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {}
            _ if character.is_control() => {}
            _ => text.push(character),
        }
        kept += 1;
    }
    PlainText { text, is_cut: false }
}

fn skip_terminal_sequence(characters: &mut std::str::Chars<'_>) {
    let mut ahead = characters.clone();
    if ahead.next() != Some('[') {
        return;
    }
    *characters = ahead;
    for character in characters.by_ref() {
        if ('@'..='~').contains(&character) {
            return;
        }
    }
}

/// Masks the passwords of URLs. `is_cut`: the text went on, so that the `@` that shows a password may be missing; then
/// the whole rest of such a URL is masked.
fn mask_urls(text: &str, is_cut: bool) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.find("://") {
        let (before, after) = rest.split_at(position + "://".len());
        masked.push_str(before);
        let length = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>'));
        let (url, following) = after.split_at(length.unwrap_or(after.len()));
        masked.push_str(&mask_url(url, is_cut && length.is_none()));
        rest = following;
    }
    masked.push_str(rest);
    masked
}

/// A URL after its `://`. A name without a password stays: `ssh://backup@host` says where, and no secret.
fn mask_url(url: &str, is_cut: bool) -> String {
    if is_cut {
        return MASK.to_owned();
    }
    let Some(at) = find_userinfo_end(url) else { return url.to_owned() };
    let (userinfo, host) = url.split_at(at);
    match userinfo.split_once(':') {
        Some((user, _)) => format!("{user}:{MASK}{host}"),
        None => url.to_owned(),
    }
}

/// Where the `@` is that ends name and password. A password may hold a `/` that should have been encoded: then what
/// looks like a port is not a number.
fn find_userinfo_end(url: &str) -> Option<usize> {
    let authority = url.split(['/', '?', '#']).next().unwrap_or(url);
    if let Some(at) = authority.rfind('@') {
        return Some(at);
    }
    let (_, port) = authority.rsplit_once(':')?;
    let is_port = !authority.ends_with(']') && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if is_port || authority.starts_with('[') { None } else { url.rfind('@') }
}

/// Masks the values of options whose name ends as a secret's does. One pass: a line may be nothing but options.
fn mask_options(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut masked = String::with_capacity(text.len());
    let mut done = 0;
    for (position, _) in text.match_indices('=') {
        let value = position + 1;
        if position < done || !SECRET_NAMES.iter().any(|name| lower[..value].ends_with(name)) {
            continue;
        }
        let length = secret_length(&text[value..]);
        if length > 0 {
            masked.push_str(&text[done..value]);
            masked.push_str(MASK);
            done = value + length;
        }
    }
    masked.push_str(&text[done..]);
    masked
}

fn secret_length(value: &str) -> usize {
    match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].find(quote).map_or(value.len(), |end| end + 2),
        _ => value.find(|c: char| c.is_whitespace() || matches!(c, '&' | '"' | '\'' | ',')).unwrap_or(value.len()),
    }
}
