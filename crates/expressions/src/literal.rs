//! Literals: the integers, texts and bytes that their source stands for.

/// The integer that is written in decimal or hexadecimal digits; `None` if it is out of range.
pub fn parse_integer(digits: &str) -> Option<u64> {
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// The text that a string literal stands for; `None` if an escape is wrong.
pub fn unescape_text(body: &str, raw: bool) -> Option<String> {
    let mut text = String::with_capacity(body.len());
    unescape(body, raw, |part| {
        match part {
            Unescaped::Plain(plain) => text.push_str(plain),
            Unescaped::CodePoint(letter) => text.push(letter),
            Unescaped::Byte(byte) => text.push(char::from(byte)),
        }
        true
    })?;
    Some(text)
}

/// The bytes that a bytes literal stands for: its letters as UTF-8, and one byte for each escape.
pub fn unescape_bytes(body: &str, raw: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(body.len());
    unescape(body, raw, |part| {
        match part {
            Unescaped::Plain(plain) => bytes.extend(plain.bytes()),
            // A code point is no byte.
            Unescaped::CodePoint(_) => return false,
            Unescaped::Byte(byte) => bytes.push(byte),
        }
        true
    })?;
    Some(bytes)
}

enum Unescaped<'s> {
    Plain(&'s str),
    /// Of `\u` and `\U`.
    CodePoint(char),
    /// Of every other escape. In a text it is the code point of this number.
    Byte(u8),
}

fn unescape(body: &str, raw: bool, mut push: impl FnMut(Unescaped<'_>) -> bool) -> Option<()> {
    // A line ends the same way wherever the expression was written.
    let body = body.replace("\r\n", "\n").replace('\r', "\n");
    let mut rest = body.as_str();
    while let Some((before, escape)) = rest.split_once('\\').filter(|_| !raw) {
        let (letter, length) = unescape_letter(escape)?;
        if !push(Unescaped::Plain(before)) || !push(letter) {
            return None;
        }
        rest = &escape[length..];
    }
    push(Unescaped::Plain(rest)).then_some(())
}

/// What the escape after a backslash stands for, and the escape's length.
fn unescape_letter(escape: &str) -> Option<(Unescaped<'static>, usize)> {
    let number = |digits: std::ops::Range<usize>, radix: u32| {
        let code = escape.get(digits).filter(|code| code.bytes().all(|digit| digit.is_ascii_alphanumeric()))?;
        u32::from_str_radix(code, radix).ok()
    };
    let byte = |digits: std::ops::Range<usize>, radix: u32| {
        Some((Unescaped::Byte(u8::try_from(number(digits.clone(), radix)?).ok()?), digits.end))
    };
    let code_point = |digits: std::ops::Range<usize>| {
        Some((Unescaped::CodePoint(char::from_u32(number(digits.clone(), 16)?)?), digits.end))
    };
    let letter = |byte: u8| Some((Unescaped::Byte(byte), 1));
    match escape.bytes().next()? {
        b'a' => letter(b'\x07'),
        b'b' => letter(b'\x08'),
        b'f' => letter(b'\x0C'),
        b'n' => letter(b'\n'),
        b'r' => letter(b'\r'),
        b't' => letter(b'\t'),
        b'v' => letter(b'\x0B'),
        sign @ (b'\\' | b'\'' | b'"' | b'`' | b'?') => letter(sign),
        b'x' | b'X' => byte(1..3, 16),
        b'u' => code_point(1..5),
        b'U' => code_point(1..9),
        b'0'..=b'3' => byte(0..3, 8),
        _ => None,
    }
}
