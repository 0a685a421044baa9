//! However many ask at once, a tenant keeps one active admin, and an address belongs to one user.
//!
//! All that race are let in, with the rights they had at the door, before the first of them writes.

use std::future::{Future, IntoFuture};
use std::time::Duration;

use futures_util::future::join_all;
use kernel::base::{FaultPoints, InjectedFault};
use tokio::sync::watch;

use super::*;
use crate::support::Setup;
use crate::support::call::Call;

const ROUNDS: usize = 12;
/// Requests that want the same address.
const RIVALS: usize = 8;
/// Longer than it takes for a request to be let in, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whoever waits for a database that is starved is told to come again: refused, like the others.
const BUSY: u16 = 503;

/// How many requests have been let in and are about to write.
struct Asked(watch::Receiver<usize>);

impl Asked {
    /// A server that counts them.
    async fn start(setup: Setup) -> (Server, Asked) {
        let (count, asked) = watch::channel(0);
        let faults = FaultPoints::new(move |place| {
            if place == "users.write.asked" {
                count.send_modify(|asked| *asked += 1);
            }
            InjectedFault::None
        });
        (setup.with_faults(faults).start().await, Asked(asked))
    }

    /// Ends when so many more have been let in than had been at the call.
    fn more(&self, more: usize) -> impl Future<Output = ()> + use<> {
        let mut asked = self.0.clone();
        let wanted = *asked.borrow() + more;
        async move {
            let reached = tokio::time::timeout(PATIENCE, asked.wait_for(|asked| *asked >= wanted)).await;
            assert!(reached.is_ok_and(|seen| seen.is_ok()), "not all are let in");
        }
    }
}

/// Two admins with a cookie each.
struct Pair {
    acme: Tenancy,
    users: [Value; 2],
    cookies: [String; 2],
    asked: Asked,
}

impl Pair {
    async fn make(server: &Server, asked: Asked) -> Pair {
        let acme = server.tenant("acme").await;
        let other = make(server, &acme, "other@acme.test", "admin").await;
        let users = [me(server, &acme.admin).await, other];
        let cookies = [acme.admin.clone(), sign_in(server, &acme, &users[1]).await];
        Pair { acme, users, cookies, asked }
    }

    /// What both are asked at once, in either order; and what came back, of each in their own place.
    async fn at_once(&self, server: &Server, calls: [Call<'_>; 2], swapped: bool) -> [Answer; 2] {
        let (held, both) = (server.hold_writes(self.acme.tenant.id).await, self.asked.more(2));
        let [first, second] = calls;
        let (first, second) = if swapped { (second, first) } else { (first, second) };
        let release = async {
            both.await;
            drop(held);
        };
        let (first, second, ()) = tokio::join!(first.into_future(), second.into_future(), release);
        if swapped { [second, first] } else { [first, second] }
    }

    /// The one who is left, by whose cookie the other becomes an admin again.
    async fn restore(&mut self, server: &Server) {
        let admins = async |cookie: &str| server.get(format!("{USERS}?role=admin&status=active")).cookie(cookie).await;
        let answers = [admins(&self.cookies[0]).await, admins(&self.cookies[1]).await];
        // Whoever is no admin any more may still be able to read users.
        let found = answers.iter().find(|answer| answer.status == 200).expect("one is left").json();
        let found: Vec<&str> = found["data"].as_array().unwrap().iter().map(id_of).collect();
        let left = usize::from(found != [id_of(&self.users[0])]);
        assert_eq!(found, [id_of(&self.users[left])], "exactly one admin is left");
        let lost = &self.users[1 - left];
        let mut body = but(lost, "role", "admin");
        body["status"] = json!("active");
        put(server, &self.cookies[left], lost, &body).await.is(200);
        self.cookies[1 - left] = sign_in(server, &self.acme, lost).await;
    }
}

#[track_caller]
fn assert_one(answers: &[Answer; 2], done: u16, refused: &[u16]) {
    let mut statuses = answers.each_ref().map(|answer| answer.status);
    statuses.sort_unstable();
    assert!(statuses[0] == done && (refused.contains(&statuses[1]) || statuses[1] == BUSY), "{statuses:?}");
}

over_http! {
    async fn of_two_admins_who_demote_each_other_one_is_left(setup: Setup) {
        let (server, asked) = Asked::start(setup).await;
        let mut pair = Pair::make(&server, asked).await;
        for round in 0..ROUNDS {
            let demote = |by: usize| {
                let whom = &pair.users[1 - by];
                server.put(one(whom)).cookie(&pair.cookies[by]).json(&but(whom, "role", "viewer"))
            };
            let answers = pair.at_once(&server, [demote(0), demote(1)], round % 2 == 1).await;
            assert_one(&answers, 200, &[403]);
            pair.restore(&server).await;
        }
    }

    async fn of_two_admins_who_disable_each_other_one_is_left(setup: Setup) {
        let (server, asked) = Asked::start(setup).await;
        let mut pair = Pair::make(&server, asked).await;
        for round in 0..ROUNDS {
            let disable = |by: usize| {
                let whom = &pair.users[1 - by];
                if round % 4 < 2 {
                    return server.delete(one(whom)).cookie(&pair.cookies[by]);
                }
                server.put(one(whom)).cookie(&pair.cookies[by]).json(&but(whom, "status", "disabled"))
            };
            let answers = pair.at_once(&server, [disable(0), disable(1)], round % 2 == 1).await;
            let done = if round % 4 < 2 { 204 } else { 200 };
            assert_one(&answers, done, &[401]);
            pair.restore(&server).await;
        }
    }

    async fn so_it_is_through_keys_which_go_on(setup: Setup) {
        let (server, asked) = Asked::start(setup).await;
        let mut pair = Pair::make(&server, asked).await;
        let keys = [server.key(&pair.acme, &["*"]).await.plain, server.key(&pair.acme, &["*"]).await.plain];
        for round in 0..ROUNDS {
            let take = |by: usize| {
                let whom = &pair.users[1 - by];
                let field = if round % 4 < 2 { ("role", "technician") } else { ("status", "disabled") };
                server.put(one(whom)).key(&keys[by]).json(&but(whom, field.0, field.1))
            };
            let answers = pair.at_once(&server, [take(0), take(1)], round % 2 == 1).await;
            assert_one(&answers, 200, &[409]);
            pair.restore(&server).await;
        }
    }

    async fn of_many_who_want_an_address_one_gets_it(setup: Setup) {
        let (server, asked) = Asked::start(setup).await;
        let acme = server.tenant("acme").await;
        for round in 0..4 {
            let body = input(&format!("ann{round}@acme.test"), "viewer");
            let (held, all) = (server.hold_writes(acme.tenant.id).await, asked.more(RIVALS));
            let calls = (0..RIVALS).map(|_| server.post(USERS).cookie(&acme.admin).json(&body).into_future());
            let release = async {
                all.await;
                drop(held);
            };
            let (answers, ()) = tokio::join!(join_all(calls), release);
            let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
            statuses.sort_unstable();
            let (made, refused) = statuses.split_first().expect("answers");
            assert!(*made == 201 && refused.iter().all(|status| [409, BUSY].contains(status)), "{statuses:?}");
        }
    }
}
