//! How long the question whether to approve a list takes, and its approval: of 10,000,000 messages, compared with
//! 10,000.

use std::time::{Duration, Instant};

use anyhow::ensure;
use smsq_lifecycle::approval::{ApprovalRules, ListFacts};
use smsq_store::{
    ApprovalResult, AuditEntry, CampaignChange, CampaignStatus, ImportApproval, ListApproval,
};

use crate::database::Database;
use crate::engine::Engine;
use crate::numbers::say;

const SHORT: u64 = 10_000;
const LONG: u64 = 10_000_000;
/// Both lists alternate. The first question is about the list, the others about all messages of the campaign, because
/// its settings were changed.
const TURNS: u32 = 20;

/// The slowest question and the slowest approval of both lists, and their ratios.
pub(crate) async fn durations(engine: Engine) -> anyhow::Result<Vec<String>> {
    say(&format!("approval of a long list on {}", engine.name()));
    let (short, long) = (waiting(engine, SHORT).await?, waiting(engine, LONG).await?);
    let (mut of_short, mut of_long) = (Slowest::default(), Slowest::default());
    for _ in 0..TURNS {
        of_short.measure(&short).await?;
        of_long.measure(&long).await?;
    }
    let ratio = |long: Duration, short: Duration| {
        format!("{:.2}", long.as_secs_f64() / short.as_secs_f64())
    };
    Ok(vec![
        format!("{:.1?}", of_long.question),
        ratio(of_long.question, of_short.question),
        format!("{:.1?}", of_long.approval),
        ratio(of_long.approval, of_short.approval),
    ])
}

/// A database with a list of `messages` that waits.
async fn waiting(engine: Engine, messages: u64) -> anyhow::Result<Database> {
    let database = Database::new(engine).await?;
    add(&database, messages).await?;
    Ok(database)
}

async fn add(database: &Database, messages: u64) -> anyhow::Result<()> {
    let list = ListApproval { hash: "bench".to_owned(), who: "ann".to_owned() };
    let store = &database.store;
    let now = store.now().await?;
    let approval = ImportApproval::OfList(list.clone());
    database.fill_as(&approval, messages, now).await?;
    let rules = ApprovalRules { from_messages: 1, ..ApprovalRules::default() };
    let (id, facts) = (database.campaign_id, ListFacts::default());
    let reason = store.decide_list(id, &list, &rules, &facts).await?;
    ensure!(reason.is_some(), "the list does not wait");
    Ok(())
}

#[derive(Default)]
struct Slowest {
    question: Duration,
    approval: Duration,
}

impl Slowest {
    async fn measure(&mut self, database: &Database) -> anyhow::Result<()> {
        let (store, id) = (&database.store, database.campaign_id);
        let began = Instant::now();
        let subject = store.approval_subject(id, "ben").await?;
        self.question = self.question.max(began.elapsed());
        ensure!(!subject.waiting.is_empty(), "nothing waits");
        let entry = AuditEntry {
            at: store.now().await?,
            who: "ben".to_owned(),
            what: "approve".to_owned(),
            campaign: None,
            detail: String::new(),
        };
        let began = Instant::now();
        let approved = store.approve(id, &subject.fingerprint, &entry).await?;
        self.approval = self.approval.max(began.elapsed());
        ensure!(approved == ApprovalResult::Done, "{approved:?}");
        // Changed settings let everything wait again.
        let change = CampaignChange { rate: Some("1/s".parse()?), ..CampaignChange::default() };
        let entry = AuditEntry { who: "ann".to_owned(), ..entry };
        let states = &CampaignStatus::ALL;
        store.change_campaign_in(id, states, &change, None, &entry).await?;
        Ok(())
    }
}
