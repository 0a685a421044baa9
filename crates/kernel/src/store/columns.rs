//! The columns of a record, listed once: statements are built from the list at compile time, and rows are read and written
//! by name. Conditions and joins remain plain SQL.

/// Declares columns as the fields of a struct, which holds the values of a row to write, or the index of each column in a
/// row that was read. So columns cannot be confused by their order.
///
/// ```
/// use kernel::store::Value;
///
/// kernel::columns! {
///     /// All columns of a note but the tenant, which is `$1` of every statement.
///     struct NoteColumns in "notes" by id { id, r#type = "type", body }
/// }
/// assert_eq!(NoteColumns::SELECT, "SELECT id, type, body FROM notes WHERE tenant_id = $1");
/// assert_eq!(NoteColumns::INSERT, "INSERT INTO notes (tenant_id, id, type, body) VALUES ($1, $2, $3, $4)");
/// assert_eq!(NoteColumns::UPDATE, "UPDATE notes SET type = $3, body = $4 WHERE tenant_id = $1 AND id = $2");
/// assert_eq!(NoteColumns::AT.body, 2, "for row.get(…)");
/// let row = NoteColumns { body: "Hello", id: "1", r#type: "memo" };
/// assert_eq!(row.into_vec(), ["1", "memo", "Hello"]);
///
/// // A list for reading only, of any expressions.
/// kernel::columns! {
///     struct ShownColumns { id = "n.id", read_at = "r.at" }
/// }
/// const SHOWN: &str = kernel::sql!["SELECT ", ShownColumns::LIST, " FROM notes n JOIN reads r ON r.note_id = n.id"];
/// assert!(SHOWN.starts_with("SELECT n.id, r.at FROM"));
/// ```
#[macro_export]
macro_rules! columns {
    (
        $(#[$meta:meta])*
        $visible:vis struct $name:ident $(in $table:literal $(by $($key:ident),+)?)? {
            $($column:ident $(= $sql:literal)?),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        $visible struct $name<T> {
            $(pub $column: T),+
        }

        impl<T> $name<T> {
            /// The values in the order of the statements.
            pub fn into_vec(self) -> Vec<T> {
                vec![$(self.$column),+]
            }
        }

        impl $name<usize> {
            const NAMES: &[&str] = &[$($crate::columns!(@name $column $($sql)?)),+];

            /// The column list of a SELECT.
            pub const LIST: &str = $crate::sql!(@text $crate::store::Text::list($name::NAMES));

            /// The index of each column in a row selected with `LIST`.
            pub const AT: Self = {
                let mut at = 0;
                $name { $($column: { at += 1; at - 1 }),+ }
            };

            $($crate::columns! { @table $table $name })?
            $($($crate::columns! { @update $table $name $($key)+ })?)?
        }

        // Uses every item, because some columns are only read and others only written.
        const _: (&str, $name<usize>, fn($name<()>) -> Vec<()>) = ($name::LIST, $name::AT, $name::into_vec);
        $(const _: [&str; 3] = [$table, $name::SELECT, $name::INSERT];)?
    };
    (@name $column:ident) => { stringify!($column) };
    (@name $column:ident $sql:literal) => { $sql };
    (@table $table:literal $name:ident) => {
        pub const SELECT: &str = $crate::sql!["SELECT ", $name::LIST, " FROM ", $table, " WHERE tenant_id = $1"];
        pub const INSERT: &str = $crate::sql!(@text $crate::store::Text::insert($table, $name::NAMES));
    };
    (@update $table:literal $name:ident $($key:ident)+) => {
        pub const UPDATE: &str = $crate::sql!(@text $crate::store::Text::update($table, $name::NAMES, &[$(stringify!($key)),+]));
    };
}

/// Makes a record from a row that was selected with the list of some `columns!`: first the fields that are columns of the same
/// name, and after the semicolon those that are made of something else.
///
/// ```
/// use kernel::base::Result;
/// use kernel::store::Row;
///
/// kernel::columns! {
///     struct NoteColumns in "notes" { id, body, tags }
/// }
/// struct Note { id: i64, body: String, tags: Vec<String> }
/// fn read_note(row: &Row<'_>) -> Result<Note> {
///     let tags: String = row.get(NoteColumns::AT.tags)?;
///     Ok(kernel::read_record!(row, NoteColumns => Note {
///         id, body;
///         tags: tags.split(' ').map(str::to_owned).collect(),
///     }))
/// }
/// ```
#[macro_export]
macro_rules! read_record {
    ($row:ident, $columns:ident => $record:ident {
        $($column:ident),+ $(,)? $(; $($field:ident $(: $value:expr)?),* $(,)?)?
    }) => {
        $record { $($column: $row.get($columns::AT.$column)?,)+ $($($field $(: $value)?),*)? }
    };
}

/// Concatenates texts at compile time, for `statements!`.
#[macro_export]
macro_rules! sql {
    (@text $text:expr) => {{
        const TEXT: &$crate::store::Text = &$text;
        TEXT.as_str()
    }};
    ($($part:expr),+ $(,)?) => {
        $crate::sql!(@text $crate::store::Text::of(&[$($part),+]))
    };
}

/// A longer statement does not compile. All columns of a ticket take a third of it.
const TEXT_BYTES_MAX: usize = 4_096;

/// A text that is built at compile time.
#[doc(hidden)]
pub struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl Text {
    pub const fn of(parts: &[&str]) -> Self {
        let (mut text, mut at) = (Text { bytes: [0; TEXT_BYTES_MAX], len: 0 }, 0);
        while at < parts.len() {
            text.push_str(parts[at]);
            at += 1;
        }
        text
    }

    pub const fn list(names: &[&str]) -> Self {
        let (mut text, mut at) = (Text::of(&[]), 0);
        while at < names.len() {
            text.push_str(if at == 0 { "" } else { ", " });
            text.push_str(names[at]);
            at += 1;
        }
        text
    }

    pub const fn insert(table: &str, names: &[&str]) -> Self {
        let mut text = Text::of(&["INSERT INTO ", table, " (tenant_id, ", Text::list(names).as_str(), ") VALUES ($1"]);
        let mut at = 0;
        while at < names.len() {
            text.push_str(", ");
            text.push_parameter(at);
            at += 1;
        }
        text.push_str(")");
        text
    }

    /// Sets every column that is not a key. A key must be one of the columns: any other gets a parameter without a value.
    pub const fn update(table: &str, names: &[&str], keys: &[&str]) -> Self {
        let (mut text, mut at, mut is_first) = (Text::of(&["UPDATE ", table, " SET "]), 0, true);
        while at < names.len() {
            if position_of(names[at], keys) == keys.len() {
                text.push_str(if is_first { "" } else { ", " });
                text.push_equality(names[at], at);
                is_first = false;
            }
            at += 1;
        }
        text.push_str(" WHERE tenant_id = $1");
        let mut key = 0;
        while key < keys.len() {
            text.push_str(" AND ");
            text.push_equality(keys[key], position_of(keys[key], names));
            key += 1;
        }
        text
    }

    pub const fn as_str(&self) -> &str {
        match str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            // Concatenated texts are valid UTF-8.
            Err(_) => "",
        }
    }

    pub(super) const fn push_str(&mut self, part: &str) {
        let (part, mut at) = (part.as_bytes(), 0);
        while at < part.len() {
            self.bytes[self.len] = part[at];
            self.len += 1;
            at += 1;
        }
    }

    const fn push_equality(&mut self, name: &str, at: usize) {
        self.push_str(name);
        self.push_str(" = ");
        self.push_parameter(at);
    }

    /// The parameter of a column of the list; `$1` is the tenant.
    pub(super) const fn push_parameter(&mut self, at: usize) {
        self.push_str("$");
        self.push_number(at + 2);
    }

    const fn push_number(&mut self, number: usize) {
        if number >= 10 {
            self.push_number(number / 10);
        }
        self.push_str(DIGITS[number % 10]);
    }
}

const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// The position of a name in a list, or the list's length.
const fn position_of(name: &str, names: &[&str]) -> usize {
    let mut at = 0;
    while at < names.len() && !is_equal(name.as_bytes(), names[at].as_bytes()) {
        at += 1;
    }
    at
}

const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

#[cfg(test)]
mod tests {
    crate::columns! {
        struct Wide in "wide" by b, a { a, b, c, d, e, f, g, h, i, j }
    }

    #[test]
    fn keys_are_not_set_and_every_place_is_that_of_the_list() {
        let update = "UPDATE wide SET c = $4, d = $5, e = $6, f = $7, g = $8, h = $9, i = $10, j = $11 \
                      WHERE tenant_id = $1 AND b = $3 AND a = $2";
        assert_eq!(Wide::UPDATE, update);
        let insert = "INSERT INTO wide (tenant_id, a, b, c, d, e, f, g, h, i, j) \
                      VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
        assert_eq!(Wide::INSERT, insert);
        assert_eq!((Wide::AT.a, Wide::AT.j), (0, 9));
    }
}
