//! The SQL of one arm of an [`IndexWalk`](super::IndexWalk), built at compile time.

use super::columns::Text;

/// A range of an index in the order of a list, newest first unless [`ArmSql::ascending`]. Its parameters are its values from
/// `$2` on, then the bound that it starts after (exclusive), the bound that it ends at (inclusive), and the row limit.
///
/// Each value is compared twice, by `=` and by `>=`: with any table statistics PostgreSQL then estimates the index with the
/// value to be cheaper than the one without.
///
/// ```
/// use kernel::store::ArmSql;
///
/// const NOTES: ArmSql = ArmSql::new("id, author_id", "notes", &["id"]);
/// kernel::statements! {
///     BY_ID = kernel::arm!(NOTES);
///     BY_AUTHOR = kernel::arm!(NOTES.use_index("notes_by_author").where_equal(&["author_id"]));
/// }
/// assert_eq!(BY_ID, "SELECT id, author_id FROM notes WHERE tenant_id = $1 AND id < $2 AND id >= $3 ORDER BY id DESC LIMIT $4");
/// assert!(BY_AUTHOR.contains("notes /* INDEXED BY notes_by_author */ WHERE"));
/// assert!(BY_AUTHOR.contains("author_id = $2 AND author_id >= $2 AND id < $3 AND id >= $4 ORDER BY id DESC LIMIT $5"));
/// ```
#[derive(Clone, Copy)]
pub struct ArmSql {
    columns: &'static str,
    table: &'static str,
    order: &'static [&'static str],
    index: Option<&'static str>,
    values: &'static [&'static str],
    only: Option<&'static str>,
    ascending: bool,
}

impl ArmSql {
    /// The columns to read, and the columns that the list is ordered by.
    pub const fn new(columns: &'static str, table: &'static str, order: &'static [&'static str]) -> Self {
        ArmSql { columns, table, order, index: None, values: &[], only: None, ascending: false }
    }

    /// Makes SQLite use this index.
    #[must_use]
    pub const fn use_index(self, index: &'static str) -> Self {
        ArmSql { index: Some(index), ..self }
    }

    /// The columns that an arm has a value for: those before the sort columns in the index.
    #[must_use]
    pub const fn where_equal(self, values: &'static [&'static str]) -> Self {
        ArmSql { values, ..self }
    }

    /// The condition of a partial index.
    #[must_use]
    pub const fn where_condition(self, condition: &'static str) -> Self {
        ArmSql { only: Some(condition), ..self }
    }

    /// Oldest first.
    #[must_use]
    pub const fn ascending(self) -> Self {
        ArmSql { ascending: true, ..self }
    }

    #[doc(hidden)]
    pub const fn text(self) -> Text {
        let mut text = Text::of(&["SELECT ", self.columns, " FROM ", self.table]);
        if let Some(index) = self.index {
            text.push_str(" /* INDEXED BY ");
            text.push_str(index);
            text.push_str(" */");
        }
        text.push_str(" WHERE tenant_id = $1");
        text.push_each(" = ", self.values);
        text.push_each(" >= ", self.values);
        if let Some(condition) = self.only {
            text.push_str(" AND ");
            text.push_str(condition);
        }
        let (start, end, direction) = if self.ascending { (" > ", " <= ", "") } else { (" < ", " >= ", " DESC") };
        text.push_bound(start, self.order, self.values.len());
        text.push_bound(end, self.order, self.values.len() + self.order.len());
        text.push_str(" ORDER BY ");
        let mut at = 0;
        while at < self.order.len() {
            text.push_str(if at == 0 { "" } else { ", " });
            text.push_str(self.order[at]);
            text.push_str(direction);
            at += 1;
        }
        text.push_str(" LIMIT ");
        text.push_parameter(self.values.len() + 2 * self.order.len());
        text
    }
}

impl Text {
    const fn push_each(&mut self, operator: &str, columns: &[&str]) {
        let mut at = 0;
        while at < columns.len() {
            self.push_str(" AND ");
            self.push_str(columns[at]);
            self.push_str(operator);
            self.push_parameter(at);
            at += 1;
        }
    }

    /// Several columns are compared as a tuple.
    const fn push_bound(&mut self, operator: &str, columns: &[&str], first: usize) {
        let (open, close) = if columns.len() == 1 { ("", "") } else { ("(", ")") };
        self.push_str(" AND ");
        self.push_str(open);
        self.push_str(Text::list(columns).as_str());
        self.push_str(close);
        self.push_str(operator);
        self.push_str(open);
        let mut at = 0;
        while at < columns.len() {
            self.push_str(if at == 0 { "" } else { ", " });
            self.push_parameter(first + at);
            at += 1;
        }
        self.push_str(close);
    }
}

/// The text of an [`ArmSql`], for `statements!`.
#[macro_export]
macro_rules! arm {
    ($arms:expr) => {
        $crate::sql!(@text $arms.text())
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_several_columns_is_bounded_by_all_of_them() {
        let arms = ArmSql::new("at, id", "entries", &["at", "id"])
            .use_index("by_both")
            .where_equal(&["a", "b"])
            .where_condition("c <> 'x'");
        let text = "SELECT at, id FROM entries /* INDEXED BY by_both */ WHERE tenant_id = $1 AND a = $2 AND b = $3 \
                    AND a >= $2 AND b >= $3 AND c <> 'x' AND (at, id) < ($4, $5) AND (at, id) >= ($6, $7) \
                    ORDER BY at DESC, id DESC LIMIT $8";
        assert_eq!(arms.text().as_str(), text);
        let ascending = ArmSql::new("n", "entries", &["n"]).ascending();
        let text = "SELECT n FROM entries WHERE tenant_id = $1 AND n > $2 AND n <= $3 ORDER BY n LIMIT $4";
        assert_eq!(ascending.text().as_str(), text);
    }
}
