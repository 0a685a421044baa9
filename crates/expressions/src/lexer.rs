//! Splits source text into tokens. The source is bounded here, before anything recurses over it.

use super::ExpressionError;

/// A longer expression is a program, which belongs elsewhere.
pub const SOURCE_BYTES_MAX: usize = 2_048;
/// The parser recurses: these limits keep it within a tenth of a thread's stack.
const TOKENS_MAX: usize = 256;
const NESTING_MAX: usize = 32;

/// Longer signs come first.
const SIGNS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "+", "-", "*", "/", "%", "!",
    "<", ">", "=",
];

const RESERVED_WORDS: &str =
    "as break const continue else for function if import let loop namespace package return var void while";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind<'s> {
    /// An operator or a bracket; `in` is one too.
    Sign,
    Name,
    /// A name that CEL keeps for itself. A field can have it.
    ReservedWord,
    /// `null`, `true` or `false`.
    Constant,
    Int,
    Uint,
    Double,
    /// The text between its quotes, and whether backslashes stand for themselves.
    Text {
        body: &'s str,
        raw: bool,
    },
    /// As for a text.
    Bytes {
        body: &'s str,
        raw: bool,
    },
    /// A name between backticks, for a field that is no word.
    QuotedName(&'s str),
    End,
    /// No token starts here, for this reason.
    Invalid(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Token<'s> {
    pub kind: TokenKind<'s>,
    pub text: &'s str,
    pub start: usize,
}

impl Token<'_> {
    /// No other token has the text of a sign: a string literal has its quotes.
    pub fn is_sign(&self, sign: &str) -> bool {
        self.text == sign
    }
}

struct Lexer<'s> {
    source: &'s str,
    offset: usize,
}

impl<'s> Lexer<'s> {
    fn next_token(&mut self) -> Token<'s> {
        self.skip_blanks();
        let rest = &self.source[self.offset..];
        let (kind, length) = scan_token(rest);
        let token = Token { kind, text: &rest[..length], start: self.offset };
        self.offset += length;
        token
    }

    /// White space, and comments up to the end of their line.
    fn skip_blanks(&mut self) {
        loop {
            let rest = self.source[self.offset..].trim_start_matches([' ', '\t', '\n', '\r', '\x0B', '\x0C']);
            let comment_bytes = if rest.starts_with("//") { rest.find('\n').unwrap_or(rest.len()) } else { 0 };
            self.offset = self.source.len() - rest.len() + comment_bytes;
            if comment_bytes == 0 {
                return;
            }
        }
    }
}

/// All tokens of an expression; the last one is its end.
pub fn read_tokens(source: &str) -> Result<Vec<Token<'_>>, ExpressionError> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(ExpressionError::invalid(format!("An expression has at most {SOURCE_BYTES_MAX} bytes.")));
    }
    let (mut lexer, mut tokens, mut open) = (Lexer { source, offset: 0 }, Vec::new(), 0_usize);
    loop {
        let token = lexer.next_token();
        tokens.push(token);
        match (token.kind, token.text) {
            (TokenKind::End, _) if tokens.len() == 1 => {
                return Err(ExpressionError::invalid("An expression cannot be empty."));
            }
            (TokenKind::End, _) => return Ok(tokens),
            (TokenKind::Invalid(detail), _) => return Err(ExpressionError::invalid_at(detail, source, token.start)),
            (_, "(" | "[" | "{") => open += 1,
            (_, ")" | "]" | "}") => open = open.saturating_sub(1),
            _ => {}
        }
        if tokens.len() > TOKENS_MAX {
            let detail = format!("An expression has at most {TOKENS_MAX} names, numbers, texts and signs.");
            return Err(ExpressionError::invalid_at(detail, source, token.start));
        }
        if open > NESTING_MAX {
            let detail = format!("Brackets can be at most {NESTING_MAX} deep.");
            return Err(ExpressionError::invalid_at(detail, source, token.start));
        }
    }
}

/// The offset at which the expression at the start of `rest` ends: the first `}}` that closes no brace of the expression.
/// Braces in its string literals do not count.
pub fn end_of_template(rest: &str) -> Result<usize, ExpressionError> {
    let (mut lexer, mut open) = (Lexer { source: rest, offset: 0 }, 0_usize);
    loop {
        let token = lexer.next_token();
        if token.start > SOURCE_BYTES_MAX {
            return Err(ExpressionError::invalid(format!(
                "An expression has at most {SOURCE_BYTES_MAX} bytes, and this one does not end before."
            )));
        }
        match (token.kind, token.text) {
            (TokenKind::Invalid(detail), _) => return Err(ExpressionError::invalid_at(detail, rest, token.start)),
            (_, "{") => open += 1,
            (_, "}") if open > 0 => open -= 1,
            (_, "}") if rest[lexer.offset..].starts_with('}') => return Ok(token.start),
            (TokenKind::End, _) | (_, "}") => {
                return Err(ExpressionError::invalid("${{ has no end: }} is missing."));
            }
            _ => {}
        }
    }
}

/// The kind and the length of the token at the start of `rest`.
fn scan_token(rest: &str) -> (TokenKind<'_>, usize) {
    let Some(first) = rest.chars().next() else { return (TokenKind::End, 0) };
    if let Some(token) = scan_text(rest) {
        return token;
    }
    if first.is_ascii_digit() || (first == '.' && starts_with_digit(&rest[1..])) {
        return scan_number(rest);
    }
    if is_word_letter(first) {
        return scan_word(rest);
    }
    if first == '`' {
        return scan_quoted_name(rest);
    }
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        Some(sign) => (TokenKind::Sign, sign.len()),
        None if first == '&' => (TokenKind::Invalid("Unexpected single '&': and is '&&'."), 1),
        None if first == '|' => (TokenKind::Invalid("Unexpected single '|': or is '||'."), 1),
        None => (TokenKind::Invalid("Unexpected character."), first.len_utf8()),
    }
}

fn is_word_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn starts_with_digit(rest: &str) -> bool {
    rest.starts_with(|letter: char| letter.is_ascii_digit())
}

fn scan_word(rest: &str) -> (TokenKind<'_>, usize) {
    let length = rest.find(|letter| !is_word_letter(letter)).unwrap_or(rest.len());
    let kind = match &rest[..length] {
        "in" => TokenKind::Sign,
        "null" | "true" | "false" => TokenKind::Constant,
        word if RESERVED_WORDS.split(' ').any(|reserved| reserved == word) => TokenKind::ReservedWord,
        _ => TokenKind::Name,
    };
    (kind, length)
}

/// As in CEL: letters, digits, spaces and some signs.
fn scan_quoted_name(rest: &str) -> (TokenKind<'_>, usize) {
    let is_allowed = |letter: char| is_word_letter(letter) || matches!(letter, '.' | '-' | '/' | ' ');
    match rest[1..].split_once('`') {
        Some((name, _)) if !name.is_empty() && name.chars().all(is_allowed) => {
            (TokenKind::QuotedName(name), name.len() + 2)
        }
        _ => (TokenKind::Invalid("Between backticks is a name of letters, digits, spaces and _ . - / signs."), 1),
    }
}

/// A string or bytes literal: `r` before it leaves backslashes alone, `b` makes it bytes, and three quotes enclose quotes.
fn scan_text(rest: &str) -> Option<(TokenKind<'_>, usize)> {
    let prefix_length = rest.bytes().take(3).position(|letter| matches!(letter, b'\'' | b'"'))?;
    let (prefix, quoted) = rest.split_at(prefix_length);
    let prefix = prefix.to_ascii_lowercase();
    if !matches!(prefix.as_str(), "" | "r" | "b" | "rb" | "br") {
        return None;
    }
    let raw = prefix.contains('r');
    let quotes_length = if quoted.starts_with("'''") || quoted.starts_with("\"\"\"") { 3 } else { 1 };
    let (quotes, body) = quoted.split_at(quotes_length);
    let end = if raw { body.find(quotes) } else { find_unescaped(body, quotes) };
    let Some(end) = end else { return Some((TokenKind::Invalid("Unterminated text."), rest.len())) };
    let body = &body[..end];
    let kind = if prefix.contains('b') { TokenKind::Bytes { body, raw } } else { TokenKind::Text { body, raw } };
    Some((kind, prefix_length + 2 * quotes_length + end))
}

fn find_unescaped(body: &str, quotes: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in body.char_indices() {
        if !escaped && body[at..].starts_with(quotes) {
            return Some(at);
        }
        escaped = letter == '\\' && !escaped;
    }
    None
}

fn scan_number(rest: &str) -> (TokenKind<'_>, usize) {
    let end_of_digits = |start: usize| start + rest[start..].bytes().take_while(u8::is_ascii_digit).count();
    let next_is = |at: usize, letters: &[char]| rest[at..].starts_with(letters);
    let (mut kind, mut end) = (TokenKind::Int, end_of_digits(0));
    if rest.starts_with("0x") || rest.starts_with("0X") {
        end = 2 + rest[2..].bytes().take_while(u8::is_ascii_hexdigit).count();
        if end == 2 {
            return (TokenKind::Invalid("A hexadecimal number needs digits."), end);
        }
    } else {
        if next_is(end, &['.']) && starts_with_digit(&rest[end + 1..]) {
            (kind, end) = (TokenKind::Double, end_of_digits(end + 1));
        }
        if next_is(end, &['e', 'E']) {
            let digits = end + 1 + usize::from(next_is(end + 1, &['+', '-']));
            (kind, end) = (TokenKind::Double, end_of_digits(digits));
            if end == digits {
                return (TokenKind::Invalid("An exponent needs digits."), end);
            }
        }
    }
    if kind == TokenKind::Int && next_is(end, &['u', 'U']) {
        (kind, end) = (TokenKind::Uint, end + 1);
    }
    if rest[end..].starts_with(is_word_letter) {
        return (TokenKind::Invalid("A number cannot be followed by letters."), end);
    }
    (kind, end)
}
