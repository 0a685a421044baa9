//! PostgreSQL: the checkout of a pooled connection, and how its failures are handled.
//!
//! Architecture invariant: a connection inside a transaction, or in an unknown state, is dropped and never returned to the
//! pool.

use std::borrow::Cow;
use std::mem::take;
use std::time::Duration;

use tokio_postgres::{Client, Row as PgRow};

use crate::base::{Error, Result, Timestamp};

use super::handle::Handle;
use super::postgres_fault::{fault, spoils};
use super::postgres_pool::{self, Object, Pool, no_connection, pooled};
use super::postgres_send::{Answer, Asked, Before, Behind, Refusal, Refused, send};
use super::row::EachRow;
use super::values::params;
use super::{Args, FromRow, Options, PostgresOptions, Row, Value, dialect};

/// How long to wait for the answers to one message: a little longer than the server's own limit for one statement, for a
/// server that no longer answers at all.
const ANSWER_MAX: Duration = Duration::from_secs(35);

/// Opens the pool and checks with one connection that its role does not bypass row-level security.
pub(super) async fn open(postgres: &PostgresOptions, options: &Options) -> Result<Pool> {
    let pool = postgres_pool::build(postgres, options)?;
    check_role(&pool, postgres.allow_superuser).await?;
    Ok(pool)
}

async fn check_role(pool: &Pool, allow_superuser: bool) -> Result<()> {
    let client = postgres_pool::first(pool).await?;
    let row = client.query_one(dialect::POSTGRES_ROLE, &[]).await.map_err(fault)?;
    let (name, unbound) = <(String, bool)>::from_row(&Row::postgres(&row))?;
    if unbound && !allow_superuser {
        return Err(Error::internal(format!(
            "the database role \"{name}\" is a superuser or has BYPASSRLS, so PostgreSQL would not keep tenants \
             apart; use a role made with CREATE ROLE … LOGIN NOSUPERUSER NOBYPASSRLS, or pass --allow-superuser"
        )));
    }
    Ok(())
}

/// One checkout. If it is dropped in the middle of a transaction, its connection is closed.
pub(super) struct Session {
    client: Option<Object>,
    state: State,
    began_at: Option<Timestamp>,
    /// Deferred statements in order; they are sent with the next awaited statement, or with the commit.
    put_off: Vec<PutOff>,
    /// The rows of deferred queries, until they are fetched.
    answers: Vec<Option<Vec<PgRow>>>,
}

struct PutOff {
    sql: Cow<'static, str>,
    values: Vec<Value>,
    answer: Option<usize>,
    /// Whether it is a statement of the store itself, to which no tenant is bound.
    is_unbound: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The next statement is the first of a checkout that only reads.
    Reading,
    /// The next statement is the first of a transaction.
    Beginning,
    InTransaction,
    Broken,
}

impl Session {
    pub async fn for_reading(pool: &Pool) -> Result<Self> {
        Session::begin(pool, State::Reading).await
    }

    pub async fn for_writing(pool: &Pool) -> Result<Self> {
        Session::begin(pool, State::Beginning).await
    }

    async fn begin(pool: &Pool, state: State) -> Result<Self> {
        let client = Some(pool.get().await.map_err(no_connection)?);
        Ok(Session { client, state, began_at: None, put_off: Vec::new(), answers: Vec::new() })
    }

    /// The database's time when the transaction began.
    pub fn began_at(&self) -> Option<Timestamp> {
        self.began_at
    }

    pub async fn exec(&mut self, handle: &Handle, sql: &str, args: Args<'_>) -> Result<u64> {
        let answer = self.ask(handle, handle.bound(), sql, args).await?;
        if answer.rows.is_empty() {
            return Ok(answer.changed);
        }
        Err(Error::internal(format!("exec does not take a statement that returns rows: {sql}")))
    }

    /// Runs a statement once for each row of arguments, all sent at once.
    pub async fn exec_each(&mut self, handle: &Handle, sql: &str, rows: &[Vec<Value>]) -> Result<u64> {
        let asked = rows.iter().map(|row| Asked { sql, tenant: handle.bound(), args: params(row).collect() }).collect();
        let answers = self.send(handle, asked, Behind::Nothing).await?;
        Ok(answers.iter().map(|answer| answer.changed).sum())
    }

    /// Defers a statement whose result is not needed, to be sent with the next awaited one.
    pub fn put_off(&mut self, sql: &'static str, values: Vec<Value>) {
        self.put_off.push(PutOff { sql: sql.into(), values, answer: None, is_unbound: false });
    }

    /// Defers a query; [`PostgresSession::fetch_rows`] returns its rows by the returned number.
    pub fn ask_ahead(&mut self, sql: Cow<'static, str>, values: Vec<Value>) -> usize {
        self.put_off_asking(sql, values, false)
    }

    /// Defers a query of the store itself, to which no tenant is bound.
    pub fn ask_unbound_ahead(&mut self, sql: &'static str, values: Vec<Value>) -> usize {
        self.put_off_asking(sql.into(), values, true)
    }

    fn put_off_asking(&mut self, sql: Cow<'static, str>, values: Vec<Value>, is_unbound: bool) -> usize {
        let number = self.answers.len();
        self.answers.push(None);
        self.put_off.push(PutOff { sql, values, answer: Some(number), is_unbound });
        number
    }

    /// The rows of a deferred query, which is sent now if it has not been yet.
    pub async fn fetch<T: FromRow>(&mut self, handle: &Handle, number: usize) -> Result<Vec<T>> {
        if self.answers.get(number).is_some_and(Option::is_none) {
            self.send(handle, Vec::new(), Behind::Nothing).await?;
        }
        let rows = self.answers.get_mut(number).and_then(Option::take);
        let rows = rows.ok_or_else(|| Error::internal("what was asked ahead has no answer"))?;
        rows.iter().map(|row| T::from_row(&Row::postgres(row))).collect()
    }

    pub async fn ask_each(&mut self, handle: &Handle, sql: &str, args: Args<'_>, each: EachRow<'_>) -> Result<()> {
        let answer = self.ask(handle, handle.bound(), sql, args).await?;
        answer.rows.iter().try_for_each(|row| each(&Row::postgres(row)))
    }

    /// The first row of a query of the store itself, to which no tenant is bound.
    pub async fn ask_unbound<T: FromRow>(&mut self, handle: &Handle, sql: &str, args: Args<'_>) -> Result<T> {
        let answer = self.ask(handle, None, sql, args).await?;
        let row = answer.rows.first().ok_or_else(|| Error::internal(format!("no answer to: {sql}")))?;
        T::from_row(&Row::postgres(row))
    }

    pub async fn prepare_check(&self, sql: &str) -> Result<()> {
        self.client()?.prepare(sql).await.map(drop).map_err(fault)
    }

    /// Begins the transaction of a job that has only deferred statements, so that the database's time is known.
    pub async fn begin_if_put_off(&mut self, handle: &Handle) -> Result<()> {
        if self.state == State::Beginning && !self.put_off.is_empty() {
            self.send(handle, Vec::new(), Behind::Nothing).await?;
        }
        Ok(())
    }

    /// Sends the deferred statements and the commit in one message. The commit is refused if any of them is.
    pub async fn commit(&mut self, handle: &Handle) -> Result<()> {
        match self.state {
            State::InTransaction => {}
            // A job without statements has begun no transaction.
            State::Beginning if self.put_off.is_empty() => return Ok(()),
            _ => return Err(Error::unavailable("nothing could be committed on this connection")),
        }
        self.send(handle, Vec::new(), Behind::Commit).await?;
        self.state = State::Beginning;
        Ok(())
    }

    /// If this fails, the connection is dropped, which ends the transaction; the caller need not know.
    pub async fn rollback(&mut self) {
        self.put_off.clear();
        if self.state != State::InTransaction {
            return;
        }
        self.state = State::Broken;
        let Ok(client) = self.client() else { return };
        let ended = tokio::time::timeout(ANSWER_MAX, client.batch_execute(dialect::POSTGRES_ROLLBACK)).await;
        if matches!(ended, Ok(Ok(()))) {
            self.state = State::Beginning;
        }
    }

    async fn ask(&mut self, handle: &Handle, tenant: Option<&String>, sql: &str, args: Args<'_>) -> Result<Answer> {
        let asked = vec![Asked { sql, tenant, args: args.to_vec() }];
        let mut answers = self.send(handle, asked, Behind::Nothing).await?;
        answers.pop().ok_or_else(|| Error::internal(format!("no answer to: {sql}")))
    }

    /// Sends the deferred statements and then these, and returns the results of these.
    async fn send(&mut self, handle: &Handle, asked: Vec<Asked<'_>>, behind: Behind) -> Result<Vec<Answer>> {
        let before = match self.state {
            State::Broken => return Err(Error::unavailable("the connection to the database was lost")),
            State::Reading => Before::Naming,
            State::Beginning => Before::BeginAndNaming,
            State::InTransaction => Before::Nothing,
        };
        let put_off = take(&mut self.put_off);
        let own = put_off.iter().map(|PutOff { sql, values, is_unbound, .. }| Asked {
            sql,
            tenant: handle.bound().filter(|_| !is_unbound),
            args: params(values).collect(),
        });
        let all: Vec<Asked<'_>> = own.chain(asked).collect();
        // If the future is dropped from here on, the connection may be inside a transaction, or have committed one.
        match (before, behind) {
            (_, Behind::Commit) => self.state = State::Broken,
            (Before::BeginAndNaming, Behind::Nothing) => self.state = State::InTransaction,
            _ => {}
        }
        let sent = send(self.client()?, (before, behind), handle.visible(), &all);
        let mut answers = match tokio::time::timeout(ANSWER_MAX, sent).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(refused)) => return Err(self.judge(refused, &put_off)),
            Err(_) => {
                self.state = State::Broken;
                return Err(Error::unavailable("the database did not answer in time"));
            }
        };
        self.began_at = answers.last().and_then(|answer| answer.began_at).or(self.began_at);
        let own = answers.split_off(put_off.len());
        for (PutOff { answer, .. }, answered) in put_off.iter().zip(answers) {
            if let Some(place) = answer.and_then(|number| self.answers.get_mut(number)) {
                *place = Some(answered.rows);
            }
        }
        Ok(own)
    }

    /// Maps a failure to an error, and decides whether the connection can still be used.
    fn judge(&mut self, refused: Refused, put_off: &[PutOff]) -> Error {
        // A commit after a statement that the database refused did not happen. If the answer to a commit was lost, its
        // outcome is unknown: so it is never retried here, and the connection is not used any more.
        let by_database = matches!(&refused.refusal, Refusal::Postgres(error) if error.as_db_error().is_some());
        if self.state == State::Broken && refused.place.is_some() && by_database {
            self.state = State::InTransaction;
        }
        let error = match refused.refusal {
            Refusal::Mismatch(error) => error,
            Refusal::OtherBackend => {
                self.state = State::Broken;
                pooled()
            }
            Refusal::Postgres(error) => {
                if spoils(&error) {
                    self.state = State::Broken;
                }
                fault(error)
            }
        };
        match refused.place.and_then(|place| put_off.get(place)) {
            Some(put_off) => error.of_statement(&put_off.sql),
            None => error,
        }
    }

    fn client(&self) -> Result<&Object> {
        self.client.as_ref().ok_or_else(|| Error::internal("the checkout has ended"))
    }
}

/// The connection of a read that is dropped half-way may be reused: the driver discards the remaining rows, and the next
/// checkout sets its tenant again.
impl Drop for Session {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && matches!(self.state, State::InTransaction | State::Broken)
        {
            drop(Object::take(client));
        }
    }
}

/// Runs several statements as one message, for migrations only.
pub(super) async fn batch(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(fault)
}
