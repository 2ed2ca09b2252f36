//! What workers left on this host about a database: which files belong to another copy of it, and the results of a file
//! that a person names.

use std::io;
use std::path::{Path, PathBuf};

use smsq_lifecycle::Settlement;
use smsq_store::{Audited, Store, StoreError};

use super::journal::{self, JournalFile};
use super::marks::{self, Mark, MarksFile};
use super::{LocalFile, LocalFiles};
use crate::{SendError, local_files};

/// Why the results of a file are not stored.
#[derive(Debug, thiserror::Error)]
pub enum LeftError {
    #[error("cannot read `{path}`: {error}")]
    Unreadable { path: String, error: io::Error },
    #[error("`{path}` is in use by {who}, which is running: stop it first")]
    InUse { path: String, who: String },
    #[error("unknown kind of file `{0}`: workers leave files that end with `.jsonl` or `.marks`")]
    UnknownKind(String),
    #[error(
        "`{path}` has no message of this database: it is of another one\nhint: use that one with `--database`; if its \
         messages were purged, delete the file"
    )]
    OtherDatabase { path: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Fails if a worker that has ended left results of another copy of the database: this may be the same database in
/// another place, and then what it would send was sent already.
pub(crate) async fn refuse_others(files: &LocalFiles) -> Result<(), SendError> {
    let files = files.clone();
    // A panic has been logged.
    let other = tokio::task::spawn_blocking(move || first_of_others(&files)).await;
    match other.unwrap_or_default() {
        Some(path) => Err(SendError::OtherDatabase(path)),
        None => Ok(()),
    }
}

fn first_of_others(files: &LocalFiles) -> Option<String> {
    let has_ended = |file: &LocalFile| {
        // One that cannot be read says nothing about messages.
        MarksFile::read_now(&file.path).is_ok_and(|marks| marks.has_ended())
    };
    let journals = files.list(journal::WHOLE).into_iter();
    let marks = files.list(marks::ENDING).into_iter();
    let mut others = journals
        .filter(|file| !file.is_own)
        .chain(marks.filter(|file| !file.is_own && has_ended(file)));
    others.next().map(|file| file.path.display().to_string())
}

/// What marks say about the messages of a database.
pub(crate) struct Redo {
    pub(crate) settlements: Vec<Settlement>,
    /// Whether the database has any of their messages.
    is_known: bool,
}

/// Makes claims again that the database has lost; returns what to store of them.
pub(crate) async fn redo(store: &Store, round: &[Mark]) -> Result<Redo, StoreError> {
    let claims: Vec<_> = round.iter().map(|mark| mark.claim.clone()).collect();
    let redone = store.workers().redo(&claims).await?;
    let is_needed = |mark: &&Mark| {
        let claim = &mark.claim;
        redone.sending.contains(&(claim.id, claim.claim))
            || (mark.is_accepted() && redone.known.contains(&claim.id))
    };
    let settlement = |mark: &Mark| {
        if redone.contested.contains(&mark.claim.id) && !mark.is_accepted() {
            mark.unknown("the database lost its claim, and another worker may have sent it")
        } else {
            mark.settlement_or_unknown()
        }
    };
    Ok(Redo {
        settlements: round.iter().filter(is_needed).map(settlement).collect(),
        is_known: !redone.known.is_empty(),
    })
}

/// Whether workers left files about this database on this host, or are running here.
pub(crate) async fn has_files(
    store: &Store,
    state_folder: Option<&Path>,
) -> Result<bool, StoreError> {
    Ok(!own_files(store, state_folder).await?.is_empty())
}

async fn own_files(store: &Store, state_folder: Option<&Path>) -> Result<Vec<PathBuf>, StoreError> {
    let files = LocalFiles::of(store, state_folder).await?;
    let list = move || {
        let journals = files.list(journal::WHOLE).into_iter();
        let own = journals.chain(files.list(marks::ENDING));
        own.filter(|file| file.is_own).map(|file| file.path).collect()
    };
    // A panic has been logged.
    Ok(tokio::task::spawn_blocking(list).await.unwrap_or_default())
}

/// Stores what workers on this host that have ended wrote down, before somebody decides about messages of theirs. The
/// files stay for the next worker.
pub async fn settle_ended(store: &Store, state_folder: Option<&Path>) -> Result<(), StoreError> {
    for path in own_files(store, state_folder).await? {
        match store_results(store, &path, &mut Audited::unrecorded()).await {
            Ok(_) | Err(LeftError::InUse { .. }) => {}
            Err(LeftError::Store(error)) => return Err(error),
            Err(error) => tracing::warn!(%error, "what a worker left is not settled"),
        }
    }
    Ok(())
}

/// Stores the results in a file that a worker left, and removes it; returns how many messages they changed. Messages that
/// were queued after the file was written are others. A file without a message of the database is kept.
pub async fn settle_file(
    store: &Store,
    path: &Path,
    mut audited: Audited,
) -> Result<u64, LeftError> {
    let path_text = || path.display().to_string();
    if !store_results(store, path, &mut audited).await? {
        return Err(LeftError::OtherDatabase { path: path_text() });
    }
    local_files::remove(path)
        .map_err(|error| LeftError::Unreadable { path: path_text(), error })?;
    Ok(*audited.done())
}

/// Stores the results in a file; returns false if it is about messages that the database does not have.
async fn store_results(
    store: &Store,
    path: &Path,
    audited: &mut Audited,
) -> Result<bool, LeftError> {
    let shown = path.display().to_string();
    let unreadable = |error| LeftError::Unreadable { path: shown.clone(), error };
    let (mut is_empty, mut is_known) = (true, false);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some(journal::WHOLE) => {
            let file = journal::read(path).map_err(unreadable)?;
            is_empty = file.settlements.is_empty();
            let settlements = of_journal(store, file).await?;
            let ids: Vec<i64> = settlements.iter().map(|settlement| settlement.id).collect();
            is_known = store.has_any(&ids).await?;
            store.settle_left(&settlements, audited).await?;
        }
        Some(marks::ENDING) => {
            let file = MarksFile::read(path).await.map_err(unreadable)?;
            if file.is_running() {
                let who = file.who();
                return Err(LeftError::InUse { path: shown, who });
            }
            for round in file.into_rounds() {
                let redo = redo(store, &round).await?;
                is_empty = false;
                is_known |= redo.is_known;
                store.settle_left(&redo.settlements, audited).await?;
            }
        }
        _ => return Err(LeftError::UnknownKind(shown)),
    }
    Ok(is_empty || is_known)
}

/// The results in a journal, without those of messages that were queued after it was written.
pub(crate) async fn of_journal(
    store: &Store,
    file: JournalFile,
) -> Result<Vec<Settlement>, StoreError> {
    let mut settlements = file.settlements;
    let ids: Vec<i64> = settlements.iter().map(|settlement| settlement.id).collect();
    let reused = store.created_after(&ids, file.written_at).await?;
    settlements.retain(|settlement| !reused.contains(&settlement.id));
    Ok(settlements)
}
