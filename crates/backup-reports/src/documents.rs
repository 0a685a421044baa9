//! Finds JSON documents in a stream that has other text around them: borg prints one object over many lines, and
//! wrappers put their own lines, or borg's log, before and behind it.

use serde::Deserialize;

/// How often a document that turns out to be none may be tried. Each trial may read to the end of the stream, so that
/// without this bound a stream of opening brackets would be read once for each of its lines.
const FAILED_TRIALS_MAX: usize = 4;

/// borg prints one document; the others are lines of its log, one for each file at the most.
const DOCUMENTS_MAX: usize = 200_000;

/// Calls `use_document` for every document that begins with its line, in their order.
pub fn for_each_document<T: for<'de> Deserialize<'de>>(stream: &str, mut use_document: impl FnMut(T)) {
    let mut position = 0;
    let mut failed_trials = 0;
    for _ in 0..DOCUMENTS_MAX {
        let Some(start) = find_document_start(stream, position) else { return };
        let mut documents = serde_json::Deserializer::from_str(&stream[start..]).into_iter::<T>();
        match documents.next() {
            Some(Ok(document)) => {
                use_document(document);
                position = start + documents.byte_offset();
            }
            _ if failed_trials == FAILED_TRIALS_MAX => return,
            _ => {
                failed_trials += 1;
                position = start + 1;
            }
        }
    }
}

/// The next bracket that is the first character of its line.
fn find_document_start(stream: &str, from: usize) -> Option<usize> {
    let rest = &stream[from..];
    rest.match_indices('{').map(|(offset, _)| from + offset).find(|start| {
        let before = &stream[..*start];
        before
            .trim_end_matches([' ', '\t', '\u{feff}'])
            .chars()
            .next_back()
            .is_none_or(|last| matches!(last, '\n' | '\r'))
    })
}
