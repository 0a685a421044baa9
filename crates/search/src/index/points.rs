//! Points for one word: exact before prefix before typo, and within each the name before the body. They are small integers:
//! sums stay exact, and are the upper 20 bits of the score in a `ResultPosition`.

pub const EXACT_NAME: u8 = 80;
pub const EXACT_BODY: u8 = 60;
pub const PREFIX_NAME: u8 = 50;
pub const PREFIX_BODY: u8 = 36;
pub const TYPO_NAME: [u8; 2] = [24, 12];
pub const TYPO_BODY: [u8; 2] = [16, 6];
/// For each of several words that are adjacent as they were typed. They decide between equals.
pub const BESIDE_NAME: u8 = 5;
pub const BESIDE_BODY: u8 = 3;
/// For the end of a serial number, as people read it from a label: more than other text, less than a name.
pub const SERIAL_END: u8 = 64;
/// The most words of one phrase that count, so that the sum over all clauses stays below the following.
pub const WORDS_MAX: u8 = 48;
/// For a machine, person or customer whose name begins with the query: more than all words together.
pub const NAME_START: u32 = 1 << 16;
/// For a record that the query is the whole name of: more than anything else.
pub const IDENTITY: u32 = 1 << 18;
