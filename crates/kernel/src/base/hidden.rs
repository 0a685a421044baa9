//! Invisible characters. They can make two names look alike, reverse the text beside them, or make up a whole name.

/// Whether the character is invisible by itself: Unicode's default-ignorable characters, interlinear annotation marks,
/// noncharacters, and the blank Braille pattern. Spaces do not count as invisible.
pub(super) fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{fdd0}'..='\u{fdef}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{fffe}'..='\u{ffff}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether a line of text must not have the character: a control character, the end of a line, or one that changes the
/// direction of what follows.
pub fn is_unfit_for_line(c: char) -> bool {
    c.is_control() || is_direction_control(c) || is_line_break(c)
}

/// Whether the character changes the direction of the text after it, so that it reads as another text.
fn is_direction_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether the character ends a line or a paragraph.
fn is_line_break(c: char) -> bool {
    matches!(c, '\u{2028}'..='\u{2029}')
}

/// Finds the first invisible character that its neighbours do not justify. Some scripts and emoji need such characters:
/// joiners within Arabic, Indic and similar words and between emoji; variation selectors directly after an emoji, a Han
/// character (names are registered with them in Japan) or a Mongolian letter.
pub(super) fn find_hidden(text: &str) -> Option<char> {
    let characters: Vec<char> = text.chars().collect();
    let at = |index: usize| characters.get(index).copied();
    (0..characters.len()).find_map(|index| {
        let before = index.checked_sub(1).and_then(at);
        // An emoji may have a variation selector between itself and the joiner.
        let joined = if before == Some(EMOJI_SELECTOR) { index.checked_sub(2).and_then(at) } else { before };
        let c = characters[index];
        (is_hidden(c) && !is_allowed_between(c, (before, joined), at(index + 1))).then_some(c)
    })
}

const NON_JOINER: char = '\u{200c}';
const JOINER: char = '\u{200d}';
const EMOJI_SELECTOR: char = '\u{fe0f}';
const KEYCAP: char = '\u{20e3}';

fn is_allowed_between(c: char, (before, joined): (Option<char>, Option<char>), after: Option<char>) -> bool {
    let Some(before) = before else { return false };
    match c {
        // Malayalam chillu letters and half forms end a word with a joiner.
        JOINER if is_virama(before) => true,
        JOINER if joined.is_some_and(is_emoji) => after.is_some_and(is_emoji),
        JOINER | NON_JOINER => after.is_some_and(|after| {
            let is_seen = |c: char| !c.is_whitespace() && !is_hidden(c);
            is_seen(before) && is_seen(after) && (is_of_joining_script(before) || is_of_joining_script(after))
        }),
        '\u{fe0e}' | EMOJI_SELECTOR if matches!(before, '0'..='9' | '#' | '*') => after == Some(KEYCAP),
        '\u{fe0e}' | EMOJI_SELECTOR => is_emoji(before),
        '\u{fe00}'..='\u{fe02}' | '\u{e0100}'..='\u{e01ef}' => is_han(before),
        '\u{180b}'..='\u{180f}' => matches!(before, '\u{1820}'..='\u{18aa}'),
        _ => false,
    }
}

/// Whether the character belongs to a script that uses joiners to shape letters: Arabic, Indic and related scripts.
fn is_of_joining_script(c: char) -> bool {
    matches!(
        c,
        '\u{600}'..='\u{109f}'
            | '\u{1780}'..='\u{18af}'
            | '\u{1900}'..='\u{1c4f}'
            | '\u{a800}'..='\u{abff}'
            | '\u{fb50}'..='\u{fdff}'
            | '\u{fe70}'..='\u{fefe}'
            | '\u{10ac0}'..='\u{10aff}'
            | '\u{11000}'..='\u{11fff}'
            | '\u{1e900}'..='\u{1e95f}'
    )
}

/// Whether the character is a virama, which removes the vowel of an Indic consonant.
fn is_virama(c: char) -> bool {
    const VIRAMAS: &str = "\u{94d}\u{9cd}\u{a4d}\u{acd}\u{b4d}\u{bcd}\u{c4d}\u{ccd}\u{d4d}\u{dca}";
    VIRAMAS.contains(c)
}

/// Whether the character can be drawn as an emoji; skin tones are included.
fn is_emoji(c: char) -> bool {
    matches!(
        c,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}'
            | '\u{24c2}' | '\u{25a0}'..='\u{27bf}' | '\u{2900}'..='\u{297f}' | '\u{2b00}'..='\u{2bff}' | '\u{3030}' | '\u{303d}'
            | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}'
    )
}

fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}
