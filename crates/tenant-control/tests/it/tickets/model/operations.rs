//! Random operations, and how they are told to a person.

use std::fmt;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy};
use proptest::prop_oneof;
use proptest::sample::select;
use serde_json::{Map, Value};

use super::plain::parse;
use super::vocabulary::{CHANGES, FIELDS, FILTERS, REFUSED, REFUSED_IN_CREATE, REFUSED_QUERIES, SORTS, SUBJECTS};

#[derive(Clone)]
pub enum Operation {
    /// Time passes.
    Pass {
        ms: i64,
    },
    Create {
        by: Caller,
        body: Value,
    },
    Patch {
        by: Caller,
        ticket: usize,
        version: Version,
        body: Value,
    },
    Get {
        ticket: usize,
    },
    /// Follows every cursor; one change is made between each page and the next, as long as there are some.
    List {
        query: Query,
        between: Vec<Operation>,
    },
    RefusedList {
        query: &'static str,
        code: &'static str,
    },
}

#[derive(Clone, Copy, Debug)]
pub enum Caller {
    User,
    Key,
}

/// What `If-Match` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Unsaid,
    Current,
    Old,
}

#[derive(Clone)]
pub struct Query {
    pub filters: Vec<(&'static str, &'static str)>,
    /// A parameter, the ticket whose time it names, and how many milliseconds before or after that.
    pub since: Option<(&'static str, usize, i64)>,
    pub sort: Option<&'static str>,
    pub limit: Option<usize>,
}

/// Tickets are named by a number that is taken modulo how many there are, so few are enough; the last is nobody's.
const TICKETS: std::ops::Range<usize> = 0..24;
pub const NOBODY: usize = 23;

/// Tickets to begin with: without them there is little to change or find.
const FIRST: std::ops::Range<usize> = 0..11;

pub fn sequence(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        1 => pass(),
        3 => create(),
        5 => patch(),
        1 => TICKETS.prop_map(|ticket| Operation::Get { ticket }),
        5 => (query(), vec(prop_oneof![create(), patch(), patch(), pass()], 0..5))
            .prop_map(|(query, between)| Operation::List { query, between }),
        1 => select(REFUSED_QUERIES).prop_map(|(query, code)| Operation::RefusedList { query, code }),
    ];
    (vec(create(), FIRST), vec(operation, length)).prop_map(|(first, then)| first.into_iter().chain(then).collect())
}

fn pass() -> impl Strategy<Value = Operation> {
    (1..4_i64).prop_map(|ms| Operation::Pass { ms })
}

fn caller() -> impl Strategy<Value = Caller> {
    prop_oneof![Just(Caller::User), Just(Caller::Key)]
}

fn create() -> impl Strategy<Value = Operation> {
    let subject = option::weighted(0.98, select(SUBJECTS));
    let refused: Vec<(&str, &str, &str)> =
        REFUSED.iter().filter(|(name, ..)| *name != "comment").chain(REFUSED_IN_CREATE).copied().collect();
    (caller(), subject, vec(select(FIELDS), 0..5), wrong(refused, 0.08)).prop_map(|(by, subject, fields, wrong)| {
        let subject = subject.map(|subject| ("subject", Value::from(subject)));
        let fields = fields.into_iter().map(|(name, text)| (name, parse(text)));
        Operation::Create { by, body: object(subject.into_iter().chain(fields).chain(wrong)) }
    })
}

fn patch() -> impl Strategy<Value = Operation> {
    let version = prop_oneof![
        8 => Just(Version::Unsaid),
        2 => Just(Version::Current),
        1 => Just(Version::Old),
    ];
    let field = prop_oneof![select(FIELDS), select(CHANGES)];
    (caller(), TICKETS, version, vec(field, 0..4), wrong(REFUSED.to_vec(), 0.08)).prop_map(
        |(by, ticket, version, fields, wrong)| {
            let fields = fields.into_iter().map(|(name, text)| (name, parse(text)));
            Operation::Patch { by, ticket, version, body: object(fields.chain(wrong)) }
        },
    )
}

/// Now and then one or two fields that are refused.
fn wrong(
    table: Vec<(&'static str, &'static str, &'static str)>,
    share: f64,
) -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    option::weighted(share, vec(select(table), 1..3))
        .prop_map(|fields| fields.into_iter().flatten().map(|(name, text, _)| (name, parse(text))).collect())
}

/// Of two values for one field the later holds.
fn object(fields: impl Iterator<Item = (&'static str, Value)>) -> Value {
    Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

fn query() -> impl Strategy<Value = Query> {
    let since = (select(&["created_since", "updated_since"][..]), TICKETS, -1..2_i64);
    let limit = option::weighted(0.9, select(&[1, 2, 2, 3, 5, 200][..]));
    let filters = prop_oneof![vec(select(FILTERS), 0..2), vec(select(FILTERS), 1..3)];
    (filters, option::weighted(0.3, since), option::weighted(0.7, select(SORTS)), limit).prop_map(
        |(mut filters, since, sort, limit)| {
            filters.sort_by_key(|(name, _)| *name);
            filters.dedup_by_key(|(name, _)| *name);
            Query { filters, since, sort, limit }
        },
    )
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Pass { ms } => write!(f, "{ms} ms pass"),
            Operation::Create { by, body } => write!(f, "POST by {by:?} {body}"),
            Operation::Patch { by, ticket, version, body } => {
                let if_match =
                    if *version == Version::Unsaid { String::new() } else { format!(" If-Match {version:?}") };
                write!(f, "PATCH by {by:?} of ticket {ticket}{if_match} {body}")
            }
            Operation::Get { ticket } => write!(f, "GET ticket {ticket}"),
            Operation::List { query, between } => {
                write!(f, "GET {query:?}")?;
                between.iter().try_for_each(|change| write!(f, "\n      next page after: {change:?}"))
            }
            Operation::RefusedList { query, code } => write!(f, "GET ?{query}, which is {code}"),
        }
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "?")?;
        self.filters.iter().try_for_each(|(name, value)| write!(f, "{name}={value}&"))?;
        self.since.iter().try_for_each(|(name, ticket, ms)| write!(f, "{name}=(ticket {ticket} {ms:+} ms)&"))?;
        self.sort.iter().try_for_each(|sort| write!(f, "sort={sort}&"))?;
        self.limit.iter().try_for_each(|limit| write!(f, "limit={limit}"))
    }
}
