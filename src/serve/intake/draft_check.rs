//! What starting a draft would do: the numbers of `smsq import --dry-run`, from the same functions.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use smsq_import::{Sample, SeenKeys};
use smsq_message::sms::Timestamp;
use smsq_message::text::counted;
use smsq_operations::{ListEstimate, ListOptions, OperationError, alphabet};
use smsq_store::Store;

use super::draft::{Draft, described};
use super::message::digest;
use super::readings::Reading;

/// A message as its recipient would see it.
#[derive(Clone, Serialize)]
pub(crate) struct ShownMessage {
    pub(crate) label: Option<String>,
    pub(crate) phone: String,
    pub(crate) content: String,
    /// `142 characters, 1 × GSM-7`
    pub(crate) size: String,
}

impl ShownMessage {
    pub(crate) fn of(label: Option<&str>, sample: &Sample) -> Self {
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
pub(crate) struct DraftCheck {
    /// Identifies what was looked at.
    pub(crate) fingerprint: String,
    pub(crate) checked_at: Option<Timestamp>,
    pub(crate) problem: Option<String>,
    /// The problem may be over when the list is checked again.
    #[serde(skip)]
    is_temporary: bool,
    /// The list was imported into another campaign within a day.
    pub(crate) again: Option<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) campaign: String,
    /// The campaign exists: the messages are added to it.
    pub(crate) is_known: bool,
    pub(crate) messages: u64,
    pub(crate) rejected: u64,
    pub(crate) rows: Vec<(String, String)>,
    pub(crate) samples: Vec<ShownMessage>,
    /// Line and reason of the first rejected rows.
    pub(crate) rejects: Vec<(u64, String)>,
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
        self.samples = estimate
            .estimate
            .labelled_samples()
            .into_iter()
            .map(|(label, sample)| ShownMessage::of(label, sample))
            .collect();
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
