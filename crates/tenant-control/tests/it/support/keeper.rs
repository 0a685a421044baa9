//! The one connection of this process by which databases of tests are made and dropped: a backend of PostgreSQL costs more
//! to start than to keep. A thread of its own has it, so that it outlives the runtime of every test.

use std::sync::OnceLock;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::postgres::{connect, server_url};

struct Order {
    sql: String,
    /// How many rows there were.
    done: oneshot::Sender<Result<usize, String>>,
}

static ORDERS: OnceLock<mpsc::UnboundedSender<Order>> = OnceLock::new();

/// Runs a statement on the server, and says how many rows it found.
pub async fn run(sql: String) -> usize {
    let found = order(sql.clone()).await.expect("the keeper of databases lives");
    found.unwrap_or_else(|error| panic!("{error}: {sql}"))
}

/// The same from where nothing can be awaited, whether it succeeds or not.
pub fn try_blocking(sql: String) {
    // A thread of a runtime may not wait, another may.
    let waiting = std::thread::spawn(move || order(sql).blocking_recv());
    let _ = waiting.join();
}

fn order(sql: String) -> oneshot::Receiver<Result<usize, String>> {
    let (done, answer) = oneshot::channel();
    // Who has gone does not answer, which the caller sees.
    let _ = ORDERS.get_or_init(start).send(Order { sql, done });
    answer
}

fn start() -> mpsc::UnboundedSender<Order> {
    let (orders, mut taken) = mpsc::unbounded_channel::<Order>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = connect(&server_url()).await;
            while let Some(Order { sql, done }) = taken.recv().await {
                let _ = done.send(rows(&client, &sql).await);
            }
        });
    });
    orders
}

async fn rows(client: &Client, sql: &str) -> Result<usize, String> {
    let messages = client.simple_query(sql).await.map_err(|error| format!("{error:?}"))?;
    Ok(messages.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count())
}
