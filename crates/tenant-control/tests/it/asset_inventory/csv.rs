//! Reads CSV as RFC 4180 has it, and nothing else.

/// The lines of a file, each with its fields.
pub fn parse(text: &str) -> Vec<Vec<String>> {
    let mut letters = text.chars().peekable();
    let (mut lines, mut line, mut field) = (Vec::new(), Vec::new(), String::new());
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                assert!(field.is_empty(), "a quote in the middle of a field: {field}");
                quoted(&mut letters, &mut field);
                let next = letters.peek();
                assert!(matches!(next, Some(',' | '\r')), "{next:?} behind a quoted field: {field}");
            }
            ',' => line.push(std::mem::take(&mut field)),
            '\r' => {
                assert_eq!(letters.next(), Some('\n'), "a line ends with both");
                line.push(std::mem::take(&mut field));
                lines.push(std::mem::take(&mut line));
            }
            '\n' => panic!("a line ends with both: {field}"),
            letter => field.push(letter),
        }
    }
    assert!(line.is_empty() && field.is_empty(), "the last line has an end");
    lines
}

/// Up to the quote that ends it.
fn quoted(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, field: &mut String) {
    loop {
        match letters.next().expect("the end of a quoted field") {
            '"' if letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' => return,
            letter => field.push(letter),
        }
    }
}

#[test]
fn what_is_quoted_is_read_as_it_was() {
    let text = "a,\"b,\"\"c\"\"\r\nd\",\r\n,\"\",x\r\n";
    assert_eq!(parse(text), [["a", "b,\"c\"\r\nd", ""], ["", "", "x"]]);
}
