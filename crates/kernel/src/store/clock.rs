//! The tenant's clock: every write advances it, so that times and sequences never go back.

use std::mem::replace;

use crate::args;
use crate::base::{Error, MINUTE_MS, Result, Timestamp, WallClock};

use super::delta::LAST_TICK;
use super::tick::Tick;
use super::tx::EngineConnection;
use super::{DatabaseEngine, Tx};

/// How far a tenant's clock may be ahead of the database's time: more than clocks of healthy machines ever differ. Without
/// the limit, one node whose clock is months ahead would move the times of all later records, permanently.
pub const CLOCK_AHEAD_MAX_MS: i64 = 10 * MINUTE_MS;

/// Advances the tenant's clock: time never goes back, and no two writes share a sequence.
const TICK: &str = "UPDATE tenant_clocks SET last_at = CASE WHEN last_at > $2 THEN last_at ELSE $2 END, \
     sequence = sequence + 1 WHERE tenant_id = $1 RETURNING last_at, sequence";

/// The same on SQLite, where no other writer can advance it in between.
const SET_CLOCK: &str = "UPDATE tenant_clocks SET last_at = $2, sequence = $3 WHERE tenant_id = $1";

/// The same for a tenant that may have no clock yet; of two first writes, the second advances the clock of the first.
const FIRST_TICK: &str = "INSERT INTO tenant_clocks (tenant_id, last_at, sequence) VALUES ($1, $2, 1) \
     ON CONFLICT (tenant_id) DO UPDATE SET \
     last_at = CASE WHEN tenant_clocks.last_at > $2 THEN tenant_clocks.last_at ELSE $2 END, \
     sequence = tenant_clocks.sequence + 1 RETURNING last_at, sequence";

/// One more sequence, for a write with several events.
const NEXT_SEQUENCE: &str = "UPDATE tenant_clocks SET sequence = sequence + 1 WHERE tenant_id = $1 RETURNING sequence";

/// The statements of this module, for the test that prepares every statement.
pub const STATEMENTS: &[(&str, &str)] = &[
    ("TICK", TICK),
    ("SET_CLOCK", SET_CLOCK),
    ("FIRST_TICK", FIRST_TICK),
    ("NEXT_SEQUENCE", NEXT_SEQUENCE),
    ("LAST_TICK", LAST_TICK),
];

impl Tx {
    /// Advances the tenant's clock, once per transaction; further calls return the same tick.
    ///
    /// On PostgreSQL the row stays locked until the end, so that one tenant's writes are serial, as they are on SQLite
    /// anyway. If the clock would be far ahead of the database's time, the transaction fails: see [`CLOCK_AHEAD_MAX_MS`].
    pub async fn tick(&mut self) -> Result<Tick> {
        if let Some(tick) = self.tick {
            return Ok(tick);
        }
        if let Some(pending) = self.pending_tick.take() {
            let moved = self.await_rows(pending).await?.pop();
            return self.save_tick(moved.ok_or_else(|| Error::internal("advancing the clock returned no row"))?);
        }
        if self.tenant_id().is_none() {
            return Err(Error::internal("only a tenant's handle has a clock to move"));
        }
        let now = self.env().now();
        let moved = match self.move_clock(now).await? {
            Some(moved) => moved,
            None => self.get_one(FIRST_TICK, args![now]).await?,
        };
        self.save_tick(moved)
    }

    fn save_tick(&mut self, (at, sequence): (Timestamp, i64)) -> Result<Tick> {
        self.check_clock_ahead(at)?;
        let tick = Tick { at, sequence };
        self.tick = Some(tick);
        Ok(tick)
    }

    /// Advances the tenant's clock without waiting; [`Tx::tick`] returns the tick. On PostgreSQL the statement is deferred
    /// and sent with the next awaited one, and queries after it run under the clock's lock.
    pub async fn defer_tick(&mut self) -> Result<()> {
        if self.tick.is_some() || self.pending_tick.is_some() {
            return Ok(());
        }
        if self.engine() == DatabaseEngine::Sqlite || self.tenant_id().is_none() {
            return self.tick().await.map(drop);
        }
        // `FIRST_TICK`, because whether the clock exists would be known only after the queries behind it have run.
        self.pending_tick = Some(self.defer_query(FIRST_TICK, vec![self.env().now().into()]).await?);
        Ok(())
    }

    /// On SQLite a SELECT and an UPDATE are cheaper than RETURNING, for which it creates a table at each execution. No other
    /// writer comes in between.
    async fn move_clock(&mut self, now: Timestamp) -> Result<Option<(Timestamp, i64)>> {
        if self.engine() == DatabaseEngine::Postgres {
            return self.find(TICK, args![now]).await;
        }
        let Some((last, sequence)) = self.find::<(Timestamp, i64)>(LAST_TICK, args![]).await? else { return Ok(None) };
        let moved = (last.max(now), sequence + 1);
        self.exec(SET_CLOCK, args![moved.0, moved.1]).await?;
        Ok(Some(moved))
    }

    /// The database's time: on PostgreSQL its own when the transaction began, or this node's before the first statement.
    pub fn database_now(&self) -> Timestamp {
        match (&self.connection, &self.env().clock) {
            (EngineConnection::Postgres(_), WallClock::Manual(_)) | (EngineConnection::Sqlite(_), _) => {
                self.env().now()
            }
            (EngineConnection::Postgres(session), _) => session.began_at().unwrap_or_else(|| self.env().now()),
        }
    }

    /// Refuses writes of a node whose clock is far ahead of the database's: it would delete rows before their retention
    /// ends, and hold its leases too long.
    pub(super) fn check_node_clock(&self) -> Result<()> {
        let (now, database_now) = (self.env().now(), self.database_now());
        if now <= database_now.plus_ms(CLOCK_AHEAD_MAX_MS) {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "this node's clock says {now} and the database's {database_now}: nothing is written until they agree"
        )))
    }

    fn check_clock_ahead(&mut self, at: Timestamp) -> Result<()> {
        let database_now = self.database_now();
        if at <= database_now.plus_ms(CLOCK_AHEAD_MAX_MS) {
            return Ok(());
        }
        // This transaction has advanced the clock already, so it must not be committed.
        self.doomed = true;
        self.check_node_clock()?;
        let tenant = self.handle.visible_tenant();
        Err(Error::unavailable(format!(
            "the clock of {tenant} stands at {at}, and it is {database_now}: a node's clock was wrong; `tenant-control \
             admin clock repair` sets it back"
        )))
    }

    /// A sequence of its own for each event of this write. Sequences rise in the order of commits, because the tenant's
    /// clock stays locked to the end.
    pub async fn next_sequence(&mut self) -> Result<i64> {
        let tick = self.tick().await?;
        if replace(&mut self.sequence_used, true) {
            return self.get_one(NEXT_SEQUENCE, args![]).await;
        }
        Ok(tick.sequence)
    }
}
