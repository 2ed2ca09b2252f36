//! What starting a draft would do: the numbers of `smsq import --dry-run`, from the same functions.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::draft::{Draft, described};
use super::message::digest;
use super::readings::Reading;
use crate::import::{Sample, SeenKeys};
use crate::message::sms::Timestamp;
use crate::message::text::counted;
use crate::operations::{ListEstimate, ListOptions, OperationError, alphabet};
use crate::store::Store;

/// A message as its recipient would see it.
#[derive(Clone, Serialize)]
pub(in crate::serve) struct ShownMessage {
    pub(in crate::serve) label: Option<String>,
    pub(in crate::serve) phone: String,
    pub(in crate::serve) content: String,
    /// `142 characters, 1 × GSM-7`
    pub(in crate::serve) size: String,
}

impl ShownMessage {
    pub(in crate::serve) fn of((label, sample): (Option<&str>, &Sample)) -> Self {
        Self {
            label: label.map(str::to_owned),
            phone: sample.phone.clone(),
            content: sample.content.clone(),
            size: format!(
                "{}, {} × {}",
                counted(sample.content.chars().count() as u64, "character"),
                sample.segments.count,
                alphabet(sample)
            ),
        }
    }
}

/// What starting a draft would do, or why it cannot be started.
#[derive(Clone, Default, Serialize)]
pub(in crate::serve) struct DraftCheck {
    /// Identifies what was looked at.
    pub(in crate::serve) fingerprint: String,
    pub(in crate::serve) checked_at: Option<Timestamp>,
    pub(in crate::serve) problem: Option<String>,
    /// The problem may be over when the list is checked again.
    #[serde(skip)]
    is_temporary: bool,
    /// The list was imported into another campaign within a day.
    pub(in crate::serve) again: Option<String>,
    pub(in crate::serve) warnings: Vec<String>,
    pub(in crate::serve) campaign: String,
    /// The campaign exists: the messages are added to it.
    pub(in crate::serve) is_known: bool,
    pub(in crate::serve) messages: u64,
    pub(in crate::serve) rejected: u64,
    pub(in crate::serve) rows: Vec<(String, String)>,
    pub(in crate::serve) samples: Vec<ShownMessage>,
    /// Line and reason of the first rejected rows.
    pub(in crate::serve) rejects: Vec<(u64, String)>,
}

impl DraftCheck {
    async fn of(
        draft: &Draft,
        options: &ListOptions,
        store: &Store,
        rows: &AtomicU64,
    ) -> Result<Self, OperationError> {
        let read = |count: u64| rows.store(count, Ordering::Relaxed);
        let plans = options.prepare(&[draft.list()], Some(store)).await?;
        options.check_rejects(&plans, read).await?;
        let asked = Mutex::new(None);
        let confirm = |question: &str| {
            if let Ok(mut asked) = asked.lock() {
                *asked = Some(question.to_owned());
            }
            true
        };
        options.check_again(&plans, store, confirm).await?;
        let again = asked.into_inner().unwrap_or_default();
        let now = store.now().await?;
        options.schedule(now)?;
        let mut check = Self { again, checked_at: Some(now), ..Self::default() };
        for plan in &plans {
            let mut seen = SeenKeys::default();
            let estimate = options.estimate(plan, &mut seen, Some(store), true, read);
            check.add(&estimate.await?);
            check.warnings.extend(plan.warnings());
        }
        check.is_known = store.campaign(&check.campaign).await?.is_some();
        Ok(check)
    }

    fn add(&mut self, estimate: &ListEstimate) {
        let list = &estimate.list;
        self.campaign.clone_from(&list.campaign);
        self.messages = list.summary.accepted;
        self.rejected = list.summary.rejected;
        self.rows =
            estimate.rows().0.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        self.samples =
            estimate.estimate.labelled_samples().into_iter().map(ShownMessage::of).collect();
        self.rejects = estimate
            .rejects
            .iter()
            .map(|(line, rejection)| (*line, rejection.reason.clone()))
            .collect();
    }
}

impl Reading for DraftCheck {
    fn depends_on(draft: &Draft) -> String {
        digest(serde_json::to_vec(&draft.request.fields).unwrap_or_default())
    }

    async fn make(draft: &Draft, lists: &ListOptions, store: &Store, rows: &AtomicU64) -> Self {
        // The file of an earlier check.
        let _ = fs::remove_file(draft.rejects());
        let check = match draft.options(lists) {
            Ok(options) => {
                Self::of(draft, &options, store, rows).await.unwrap_or_else(|error| Self {
                    problem: Some(described(&error)),
                    is_temporary: error.is_temporary(),
                    ..Self::default()
                })
            }
            Err(error) => Self { problem: Some(error.message), ..Self::default() },
        };
        Self { fingerprint: Self::depends_on(draft), ..check }
    }

    fn failed(problem: String) -> Self {
        Self { problem: Some(problem), is_temporary: true, ..Self::default() }
    }

    fn is_temporary(&self) -> bool {
        self.is_temporary
    }
}
