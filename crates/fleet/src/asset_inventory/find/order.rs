//! Sort orders of devices, and sort keys in them.

use std::cmp::Ordering;

use kernel::base::{Result, Timestamp};
use kernel::store::{ChangeKey, CursorKey, FromRow, Row, SortDirection, Value};

use crate::devices::StoredDevice;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceSortBy {
    /// The same order as by number.
    CreatedAt,
    UpdatedAt,
    /// Ignoring the case of ASCII letters.
    Hostname,
    LastSeenAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOrder {
    pub by: DeviceSortBy,
    pub descending: bool,
}

impl DeviceOrder {
    pub const NEWEST: DeviceOrder = DeviceOrder { by: DeviceSortBy::CreatedAt, descending: true };

    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, descending) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
        let by = match name {
            "created_at" => DeviceSortBy::CreatedAt,
            "updated_at" => DeviceSortBy::UpdatedAt,
            "hostname" => DeviceSortBy::Hostname,
            "last_seen_at" => DeviceSortBy::LastSeenAt,
            _ => {
                return Err(
                    "must be hostname, last_seen_at, updated_at or created_at, with - before it to descend".to_owned()
                );
            }
        };
        Ok(DeviceOrder { by, descending })
    }

    pub fn direction(self) -> SortDirection {
        if self.descending { SortDirection::Descending } else { SortDirection::Ascending }
    }

    pub fn sort_key_of(self, stored: &StoredDevice) -> OrderKey {
        let device = &stored.device;
        let time = |at: Timestamp| Value::Int(at.as_millis());
        let (value, sequence) = match self.by {
            DeviceSortBy::CreatedAt => (None, 0),
            DeviceSortBy::UpdatedAt => (Some(time(device.updated_at)), stored.sequence),
            DeviceSortBy::Hostname => (device.hostname.as_ref().map(|name| name.to_ascii_lowercase().into()), 0),
            DeviceSortBy::LastSeenAt => (device.last_seen_at.map(time), 0),
        };
        OrderKey { value, sequence, number: stored.number }
    }

    /// Missing values come last in either direction.
    pub fn compare_keys(self, a: &OrderKey, b: &OrderKey) -> Ordering {
        let values = match (&a.value, &b.value) {
            (Some(Value::Text(a)), Some(Value::Text(b))) => a.cmp(b),
            (Some(Value::Int(a)), Some(Value::Int(b))) => a.cmp(b),
            _ => Ordering::Equal,
        };
        let ordering = values.then((a.sequence, a.number).cmp(&(b.sequence, b.number)));
        let missing = a.value.is_none().cmp(&b.value.is_none());
        missing.then(if self.descending { ordering.reverse() } else { ordering })
    }
}

/// A position in a sorted list.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderKey {
    /// What the list is sorted by; `None` where a device has no such value, and in the order of numbers.
    pub value: Option<Value>,
    /// Of the change, in the order of changes.
    pub sequence: i64,
    pub number: i64,
}

impl FromRow for OrderKey {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        // The hostname is the only text; the other columns are then null or numbers.
        let text: Option<String> = row.get(0)?;
        let number: Option<i64> = row.get(1)?;
        let value = text.map(Value::from).or(number.map(Value::Int));
        Ok(OrderKey { value, sequence: row.get(2)?, number: row.get(3)? })
    }
}

/// A position in the list of devices.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceSortKey {
    Newest(i64),
    Change(ChangeKey<i64>),
    Order(OrderKey),
}

impl DeviceSortKey {
    pub fn newest(&self) -> Option<i64> {
        if let DeviceSortKey::Newest(number) = self { Some(*number) } else { None }
    }

    pub fn change(&self) -> Option<ChangeKey<i64>> {
        if let DeviceSortKey::Change(key) = self { Some(*key) } else { None }
    }

    pub fn order(self) -> Option<OrderKey> {
        if let DeviceSortKey::Order(key) = self { Some(key) } else { None }
    }
}

/// Behind the values of a sorted list, so that its cursors have a length of their own.
const ORDER_MARK: i64 = 0;

impl CursorKey for DeviceSortKey {
    fn to_position(self) -> Vec<Value> {
        match self {
            DeviceSortKey::Newest(number) => number.to_position(),
            DeviceSortKey::Change(key) => key.to_position(),
            DeviceSortKey::Order(OrderKey { value, sequence, number }) => {
                vec![value.unwrap_or(Value::Null), sequence.into(), number.into(), ORDER_MARK.into()]
            }
        }
    }

    fn from_position(position: &[Value]) -> Option<Self> {
        if let [value, Value::Int(sequence), Value::Int(number), Value::Int(ORDER_MARK)] = position {
            let value = Some(value.clone()).filter(|value| !matches!(value, Value::Null));
            return Some(DeviceSortKey::Order(OrderKey { value, sequence: *sequence, number: *number }));
        }
        let newest = i64::from_position(position).map(DeviceSortKey::Newest);
        newest.or_else(|| ChangeKey::from_position(position).map(DeviceSortKey::Change))
    }
}
