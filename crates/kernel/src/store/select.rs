//! A list with optional filters, as one SELECT.
//!
//! The text depends only on which filters are present, never on their values, so that equal shapes share one prepared
//! statement. Field names are `&'static str`: input of a client can only become a bound value.

use std::fmt::Write as _;

use super::{Param, Value};

/// The most values of one filter after rounding up; the routes' own limits are far below.
const IN_VALUES_MAX: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    AtLeast,
    AtMost,
    Above,
    Below,
}

impl Compare {
    fn sql_operator(self) -> &'static str {
        match self {
            Compare::Equal => "=",
            Compare::AtLeast => ">=",
            Compare::AtMost => "<=",
            Compare::Above => ">",
            Compare::Below => "<",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortDirection {
    Ascending,
    Descending,
}

/// A SELECT under construction.
#[derive(Clone, Debug)]
pub struct Select {
    text: String,
    order: String,
    values: Vec<Value>,
    limit: Option<i64>,
    /// Whether `$1` is the tenant that the handle binds.
    for_tenant: bool,
}

impl Select {
    /// For a tenant's handle: the text has a WHERE that uses `$1`, the tenant. Values start at `$2`.
    pub fn new(text: &str) -> Self {
        Select { text: text.to_owned(), order: String::new(), values: Vec::new(), limit: None, for_tenant: true }
    }

    /// For the system's handle: the text has a WHERE, and values start at `$1`.
    pub fn for_system(text: &str) -> Self {
        Select { for_tenant: false, ..Select::new(text) }
    }

    /// A UNION ALL of one SELECT per arm, whose last column is the arm's index from 0. In `text` the values of an arm start
    /// at `$2`; `$1` is the tenant in all of them. Arms with the values `none`, which find nothing, are added up to a power
    /// of two, so that there are few distinct texts.
    pub fn union_arms(text: &str, mut arms: Vec<Vec<Value>>, none: Vec<Value>) -> Self {
        arms.resize(arms.len().next_power_of_two(), none);
        Select::union_selects(arms.into_iter().map(|values| Select { values, ..Select::new(text) }))
    }

    /// A UNION ALL of these queries, with the arm's index as last column.
    pub fn union_selects(arms: impl IntoIterator<Item = Select>) -> Self {
        let mut select = Select::new("");
        for (index, arm) in arms.into_iter().enumerate() {
            let finished = arm.to_statement();
            let lead = if index == 0 { "" } else { " UNION ALL " };
            let text = shift_parameters(&finished.text, select.values.len());
            let _ = write!(select.text, "{lead}SELECT arm.*, CAST({index} AS BIGINT) FROM ({text}) AS arm");
            select.values.extend(finished.values);
        }
        select
    }

    /// One query for each value of a column, which its index starts with; `None` is NULL. Their number is padded like that of
    /// [`Select::union_arms`].
    pub fn split_by(self, column: &'static str, values: &[Option<String>]) -> Vec<Select> {
        // Compared twice, so that PostgreSQL does not rate the index of the whole tenant as equally good.
        let of = |value: &str| {
            let select = self.clone().where_compare(column, Compare::Equal, value);
            select.where_compare(column, Compare::AtLeast, value)
        };
        let mut arms: Vec<Select> = values.iter().flatten().map(|value| of(value)).collect();
        if !arms.is_empty() {
            arms.resize_with(arms.len().next_power_of_two(), || of(""));
        }
        if values.contains(&None) {
            arms.push(self.clone().where_null(column).lead_order_by(column));
        }
        arms
    }

    /// Binds the next parameter of the text given to [`Select::new`].
    #[must_use]
    pub fn bind_value(mut self, value: impl Into<Value>) -> Self {
        self.push_value(value.into());
        self
    }

    /// `AND field IN (…)`. An empty list matches nothing.
    #[must_use]
    pub fn where_in(mut self, field: &'static str, values: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        let mut values: Vec<Value> = values.into_iter().map(Into::into).collect();
        let Some(last) = values.last().cloned() else {
            return self.append_sql("AND 1 = 0", []);
        };
        // Repeating the last value up to a power of two keeps the number of different texts small.
        let padded_len = values.len().next_power_of_two().min(IN_VALUES_MAX.max(values.len()));
        values.resize(padded_len, last);
        let _ = write!(self.text, " AND {field} IN ");
        self.push_tuple(values);
        self
    }

    /// `AND field >= value` and the like.
    #[must_use]
    pub fn where_compare(mut self, field: &'static str, compare: Compare, value: impl Into<Value>) -> Self {
        let number = self.push_value(value.into());
        let _ = write!(self.text, " AND {field} {} ${number}", compare.sql_operator());
        self
    }

    /// `AND field IS NULL`.
    #[must_use]
    pub fn where_null(mut self, field: &'static str) -> Self {
        let _ = write!(self.text, " AND {field} IS NULL");
        self
    }

    /// Appends SQL, in which each `?` is the next of `values`.
    #[must_use]
    pub fn append_sql(mut self, text: &'static str, values: impl IntoIterator<Item = Value>) -> Self {
        let mut values = values.into_iter();
        self.text.push(' ');
        for (index, part) in text.split('?').enumerate() {
            if index > 0 {
                // A `?` without a value stays, and the engine refuses the statement.
                match values.next() {
                    Some(value) => {
                        let number = self.push_value(value);
                        let _ = write!(self.text, "${number}");
                    }
                    None => self.text.push('?'),
                }
            }
            self.text.push_str(part);
        }
        // A value without a `?` is refused as well, because the text lacks its parameter.
        self.values.extend(values);
        self
    }

    /// Continues after `position`, the sort key of the last row, in the order given to [`Select::order_by`].
    #[must_use]
    pub fn seek_after(mut self, fields: &[&'static str], direction: SortDirection, position: Vec<Value>) -> Self {
        let operator = match direction {
            SortDirection::Ascending => ">",
            SortDirection::Descending => "<",
        };
        let _ = write!(self.text, " AND ({}) {operator} ", fields.join(", "));
        self.push_tuple(position);
        self
    }

    #[must_use]
    pub fn order_by(mut self, fields: &[&'static str], direction: SortDirection) -> Self {
        let suffix = match direction {
            SortDirection::Ascending => "",
            SortDirection::Descending => " DESC",
        };
        self.order.clear();
        for (index, field) in fields.iter().enumerate() {
            let lead = if index == 0 { " ORDER BY " } else { ", " };
            let _ = write!(self.order, "{lead}{field}{suffix}");
        }
        self
    }

    /// Makes SQLite use this index; PostgreSQL chooses it by its table statistics.
    #[must_use]
    pub fn use_index(mut self, index: &'static str) -> Self {
        self.text = self.text.replacen(" WHERE ", &format!(" /* INDEXED BY {index} */ WHERE "), 1);
        self
    }

    /// Puts the field of [`Select::where_null`] first in the order. Otherwise PostgreSQL reads another index in the same
    /// order, past all rows that have a value.
    #[must_use]
    pub fn lead_order_by(mut self, field: &'static str) -> Self {
        let suffix = if self.order.ends_with(" DESC") { " DESC" } else { "" };
        self.order = self.order.replacen(" ORDER BY ", &format!(" ORDER BY {field}{suffix}, "), 1);
        self
    }

    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = i64::try_from(limit).ok();
        self
    }

    /// The finished text and its values, without the tenant.
    pub(super) fn to_statement(&self) -> SelectStatement {
        let mut finished = self.clone();
        finished.text.push_str(&self.order);
        if let Some(limit) = self.limit {
            let number = finished.push_value(Value::Int(limit));
            let _ = write!(finished.text, " LIMIT ${number}");
        }
        SelectStatement { text: finished.text, values: finished.values, for_tenant: self.for_tenant }
    }

    fn push_value(&mut self, value: Value) -> usize {
        self.values.push(value);
        self.values.len() + usize::from(self.for_tenant)
    }

    fn push_tuple(&mut self, values: Vec<Value>) {
        for (index, value) in values.into_iter().enumerate() {
            let number = self.push_value(value);
            let _ = write!(self.text, "{}${number}", if index == 0 { "(" } else { ", " });
        }
        self.text.push(')');
    }
}

/// Adds `by` to every parameter number but the tenant's.
fn shift_parameters(text: &str, by: usize) -> String {
    let mut parts = text.split('$');
    let mut shifted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        let number: usize = number.parse().unwrap_or(0);
        let _ = write!(shifted, "${}{rest}", if number > 1 { number + by } else { number });
    }
    shifted
}

pub(super) struct SelectStatement {
    pub text: String,
    pub for_tenant: bool,
    values: Vec<Value>,
}

impl SelectStatement {
    pub fn to_params(&self) -> Vec<&dyn Param> {
        self.values.iter().map(|value| value as &dyn Param).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_with_every_filter_is_one_text() {
        let finished = Select::new("SELECT id FROM api_keys WHERE tenant_id = $1")
            .where_in("status", ["a", "b", "c"])
            .where_compare("created_at", Compare::AtLeast, 5_i64)
            .append_sql("AND (revoked_at IS NULL OR revoked_at > ?)", [Value::Int(7)])
            .order_by(&["at", "id"], SortDirection::Descending)
            .limit(50)
            .seek_after(&["at", "id"], SortDirection::Descending, vec![Value::Int(9), "x".into()])
            .to_statement();
        assert_eq!(
            finished.text,
            "SELECT id FROM api_keys WHERE tenant_id = $1 AND status IN ($2, $3, $4, $5) AND created_at >= $6 \
             AND (revoked_at IS NULL OR revoked_at > $7) AND (at, id) < ($8, $9) ORDER BY at DESC, id DESC LIMIT $10"
        );
        assert_eq!(finished.to_params().len(), 9);
    }

    #[test]
    fn arms_share_the_tenant_and_have_values_of_their_own() {
        let text = "SELECT n FROM t WHERE tenant_id = $1 AND a = $2 AND n < $3";
        let arms = vec![vec!["x".into(), Value::Int(1)], vec!["y".into(), Value::Int(2)]];
        let finished = Select::union_arms(text, arms, Vec::new()).to_statement();
        assert_eq!(
            finished.text,
            "SELECT arm.*, CAST(0 AS BIGINT) FROM (SELECT n FROM t WHERE tenant_id = $1 AND a = $2 AND n < $3) AS arm \
             UNION ALL \
             SELECT arm.*, CAST(1 AS BIGINT) FROM (SELECT n FROM t WHERE tenant_id = $1 AND a = $4 AND n < $5) AS arm"
        );
        assert_eq!(finished.to_params().len(), 4);
    }

    #[test]
    fn a_filter_without_values_matches_nothing() {
        let finished =
            Select::for_system("SELECT 1 FROM tenants WHERE true").where_in("id", [""; 0]).limit(1).to_statement();
        assert_eq!(finished.text, "SELECT 1 FROM tenants WHERE true AND 1 = 0 LIMIT $1");
    }
}
