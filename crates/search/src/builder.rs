//! Builds a new index from the records of all tenants. Changes made during the build come from the change feed afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::base::{Chance, Error, Result, Word};
use kernel::store::Db;
use kernel::store::changes::{self, Place};

use super::documents::store::Place as Behind;
use super::documents::{self, Document, Kind};
use super::folder::Folder;
use super::following::{Following, PASS_EVERY, Trouble, close, number};
use super::index::Serving;
use super::index::writer::{self, Opened, Writer};
use super::keeper::COMMIT_EVERY;
use super::served::{Served, blocking};

/// The most records that are read at a time.
const WALK_ROWS: usize = 500;
/// How many attempts there are to read the same records, and the time between them.
const TRIES_MAX: usize = 30;
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Letters of a reader's name.
const NAME_LEN: usize = 16;

pub struct Builder<'a> {
    pub system: &'a Db,
    pub folder: Arc<Folder>,
    pub chance: &'a Chance,
    pub served: &'a Served,
}

/// An index being built, and the names of those that it replaces.
struct New {
    name: String,
    opened: Opened,
    writer: Writer,
    place: Place,
    replaced: Vec<String>,
}

impl Builder<'_> {
    /// Builds the index. An old one that can still be searched serves and is kept up to date meanwhile.
    pub async fn build(&self, old: Option<Following>, reason: &str) -> Result<Following, Trouble> {
        tracing::info!(reason, "building the search index");
        if old.is_none() {
            self.served.build();
        }
        let name = self.chance.base62(NAME_LEN).to_lowercase();
        let mut meanwhile = Meanwhile { old, at: None, passed_at: Instant::now() };
        let built = self.build_as(&name, &mut meanwhile).await;
        close(meanwhile.old).await;
        if built.is_err() {
            self.give_up(name).await;
        }
        built.map_err(Trouble::Index)
    }

    async fn build_as(&self, name: &str, meanwhile: &mut Meanwhile) -> Result<Following> {
        let began = Instant::now();
        let place = changes::end(self.system).await?;
        changes::begin_reader(self.system, name, place).await?;
        let mut new = self.make(name, meanwhile.old.as_ref(), place).await?;
        let mut count = 0;
        for kind in Kind::ALL {
            let mut page = Some(self.walk(*kind, None).await?);
            while let Some((found, behind)) = page {
                count += found.len();
                // The next page is read while this one is added.
                let next = async {
                    match behind {
                        Some(behind) => self.walk(*kind, Some(behind)).await.map(Some),
                        None => Ok(None),
                    }
                };
                let (writer, next) = tokio::join!(self.add_all(new.writer, found), next);
                (new.writer, page) = (writer?, next?);
                self.go_on(meanwhile, &new, count).await?;
            }
        }
        close(meanwhile.old.take()).await;
        let New { name, opened, mut writer, replaced, .. } = new;
        let (folder, current) = (self.folder.clone(), name.clone());
        let finish = move || {
            folder.check_room()?;
            writer.commit(place, place).map_err(Error::internal)?;
            writer.close();
            folder.set_current(&current)?;
            folder.note_building(None)?;
            folder.remove_others(&[&current])
        };
        self.folder.write(finish).await?;
        for old in replaced {
            // A reader that cannot be removed now expires later.
            if let Err(error) = changes::end_reader(self.system, &old).await {
                tracing::warn!(%error, "failed to unregister a replaced search index");
            }
        }
        tracing::info!(documents = count, seconds = began.elapsed().as_secs_f32(), "search index built");
        metrics::gauge!("search_build_documents").set(0.0);
        let serving = Arc::new(Serving::new(opened)?);
        Ok(Following::new(self.folder.clone(), name, serving, place, place))
    }

    /// Reads the next records. A busy or unavailable store is retried, because starting over would cost it more.
    async fn walk(&self, kind: Kind, behind: Option<Behind>) -> Result<(Vec<Document>, Option<Behind>)> {
        let mut tries = 1;
        loop {
            match documents::store::walk(self.system, kind, behind.clone(), WALK_ROWS).await {
                Err(error) if tries < TRIES_MAX => {
                    tracing::debug!(%error, "search index build is waiting for the store");
                    tries += 1;
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
                other => return other,
            }
        }
    }

    async fn add_all(&self, mut writer: Writer, found: Vec<Document>) -> Result<Writer> {
        let add = move || {
            for document in &found {
                writer.add(document).map_err(Error::internal)?;
            }
            Ok(writer)
        };
        self.folder.write(add).await
    }

    async fn make(&self, name: &str, old: Option<&Following>, place: Place) -> Result<New> {
        // The job owns its data, because it continues if its caller is dropped.
        let (folder, name, old) = (self.folder.clone(), name.to_owned(), old.map(|old| old.name().to_owned()));
        let make = move || {
            // Indexes that can no longer be searched make room for the new one.
            let replaced: Vec<String> = folder.remove_others(&old.iter().map(String::as_str).collect::<Vec<_>>())?;
            folder.note_building(Some(0))?;
            let opened = writer::create(&folder.root.join(&name)).map_err(Error::internal)?;
            let writer = Writer::building(&opened).map_err(Error::internal)?;
            Ok(New { name, opened, writer, place, replaced: replaced.into_iter().chain(old).collect() })
        };
        self.folder.write(make).await
    }

    /// Does what is due during a build: updates the old index, and saves the progress of the new one.
    async fn go_on(&self, meanwhile: &mut Meanwhile, new: &New, count: usize) -> Result<()> {
        metrics::gauge!("search_build_documents").set(number(count as u64));
        self.served.note_lag();
        if let Some(old) = &mut meanwhile.old
            && meanwhile.at.is_none_or(|at| at.elapsed() >= COMMIT_EVERY)
        {
            let began = Instant::now();
            meanwhile.at = Some(began);
            match old.step(self.system).await {
                Ok(taken) if taken.is_all => self.served.serve(old.serving(), began),
                Ok(_) | Err(Trouble::Store(_)) => {}
                Err(Trouble::Index(_)) => {
                    self.served.build();
                    close(meanwhile.old.take()).await;
                }
            }
        }
        if meanwhile.passed_at.elapsed() < PASS_EVERY {
            return Ok(());
        }
        meanwhile.passed_at = Instant::now();
        tracing::info!(documents = count, "search index build in progress");
        if !changes::pass(self.system, &new.name, new.place, new.place).await? {
            return Err(Error::internal("it was forgotten while it was being built"));
        }
        let folder = self.folder.clone();
        blocking(move || {
            folder.note_building(Some(count))?;
            folder.check_room()
        })
        .await
    }

    /// Removes the folder and the feed reader of a failed build.
    async fn give_up(&self, name: String) {
        let (folder, reader) = (self.folder.clone(), name.clone());
        let removed = blocking(move || {
            folder.note_building(None)?;
            let path = folder.root.join(&name);
            if path.exists() { std::fs::remove_dir_all(path).map_err(Error::internal) } else { Ok(()) }
        })
        .await;
        for error in [removed.err(), changes::end_reader(self.system, &reader).await.err()].into_iter().flatten() {
            tracing::warn!(%error, "failed to clean up a failed search index build");
        }
    }
}

/// The old index during a build, and when it was last updated and the progress last saved.
struct Meanwhile {
    old: Option<Following>,
    at: Option<Instant>,
    passed_at: Instant,
}
