//! Counts of messages: what was sent and where to, what ended when, and what the imports read.

use std::time::Duration;

use diesel::dsl::{count_star, max, min, sql, sum};
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use serde::Serialize;
use smsq_lifecycle::delivery::DeliveryState;
use smsq_message::route::DeliveredCount;
use smsq_message::sms::{Class, State, Timestamp, millis};
use smsq_process::boxed;

use crate::connection::prelude::*;
use crate::error::StoreError;
use crate::tables::campaign_filter::CampaignFilter;
use crate::tables::column_types::LossyText;
use crate::tables::expressions::phone_prefix;
use crate::tables::schema::{import, purged, sms, sms_failed, sms_sent};
use crate::{ReportStore, positive};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentFacts {
    pub first_at: Option<Timestamp>,
    pub last_at: Option<Timestamp>,
    pub segments: u64,
    /// The attempts of all sent messages.
    pub attempts: u64,
    /// Messages that the provider accepted more than once.
    pub repeated: u64,
}

/// Messages that one provider accepted for phones with the same first digits, which are of one country.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentCount {
    pub provider: String,
    /// One of the phones.
    pub phone: String,
    pub messages: u64,
    pub segments: u64,
    /// Segments that the provider accepted: those of a message that it accepted twice count twice.
    pub billed: u64,
}

/// The messages that were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// With the purged messages.
    pub facts: SentFacts,
    /// Without the purged messages, whose phones are deleted.
    pub counts: Vec<SentCount>,
}

/// Failed messages of one class, without the purged ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassCount {
    /// The name of a [`Class`], unless a newer smsq wrote it.
    pub class: String,
    pub messages: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

/// The messages that ended in one span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    pub sent: u64,
    /// Without the cancelled ones.
    pub failed: u64,
    pub unknown: u64,
}

/// The counts of one import.
#[derive(Clone, Debug, PartialEq, Eq, Queryable)]
pub struct ListCount {
    /// The name of its file or of another source.
    pub name: String,
    #[diesel(deserialize_as = i64)]
    pub rows: u64,
    #[diesel(deserialize_as = i64)]
    pub accepted: u64,
    #[diesel(deserialize_as = i64)]
    pub duplicates: u64,
    #[diesel(deserialize_as = i64)]
    pub suppressed: u64,
    #[diesel(deserialize_as = i64)]
    pub rejected: u64,
    /// Accepted messages in each alphabet, as far as they were counted.
    #[diesel(deserialize_as = i64)]
    pub gsm7: u64,
    #[diesel(deserialize_as = i64)]
    pub ucs2: u64,
    /// The text of its messages with placeholders, or the text of its first message.
    pub text: Option<String>,
}

/// The rows of all imported lists by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportedRows {
    pub accepted: u64,
    pub duplicates: u64,
    pub suppressed: u64,
    pub rejected: u64,
}

impl ReportStore<'_> {
    /// The sums over all imports.
    #[boxed]
    pub async fn imported_rows(&self) -> Result<ImportedRows, StoreError> {
        let rows: Vec<(i64, i64, i64, i64)> = self
            .read(import::table.select((
                import::accepted,
                import::duplicates,
                import::suppressed,
                import::rejected,
            )))
            .await?;
        let mut sum = ImportedRows::default();
        for (accepted, duplicates, suppressed, rejected) in rows {
            sum.accepted += positive(accepted);
            sum.duplicates += positive(duplicates);
            sum.suppressed += positive(suppressed);
            sum.rejected += positive(rejected);
        }
        Ok(sum)
    }

    /// Counts sent messages by provider and by the first `digits` of the phones, at least those of a country. Reads
    /// each row of `sms_sent` once.
    #[boxed]
    pub async fn sent(&self, campaigns: CampaignFilter, digits: usize) -> Result<Sent, StoreError> {
        type Sum = Option<i64>;
        type Ends = (Option<Timestamp>, Option<Timestamp>);
        type Row = (String, LossyText, i64, Sum, Sum, Sum, Sum, Ends);
        let mut facts = SentFacts::default();
        let group = format!("provider, {}", phone_prefix(digits));
        let rows: Vec<Row> = self
            .read(
                sms_sent::table
                    .filter(campaigns.on(sms_sent::campaign_id))
                    .group_by(sql::<Text>(&group))
                    .select((
                        sql::<Text>("provider"),
                        sql::<Text>("MIN(phone)"),
                        count_star(),
                        sum(sql::<Integer>("segments")),
                        sum(sql::<Integer>("COALESCE(segments, 1) * accepted")),
                        sum(sql::<Integer>("attempts")),
                        sum(sql::<Integer>("CASE WHEN accepted > 1 THEN 1 ELSE 0 END")),
                        (min(sms_sent::sent_at), max(sms_sent::sent_at)),
                    )),
            )
            .await?;
        let purged: Vec<(i64, i64, i64)> = self
            .read(purged::table.filter(campaigns.with_removed(purged::campaign_id)).select((
                purged::segments,
                purged::attempts,
                purged::repeated,
            )))
            .await?;
        let mut counts = Vec::with_capacity(rows.len());
        for (provider, phone, messages, segments, billed, attempts, repeated, ends) in rows {
            facts.first_at = facts.first_at.into_iter().chain(ends.0).min();
            facts.last_at = facts.last_at.max(ends.1);
            let [segments, billed, attempts, repeated] =
                [segments, billed, attempts, repeated].map(|sum| positive(sum.unwrap_or(0)));
            facts.segments += segments;
            facts.attempts += attempts;
            facts.repeated += repeated;
            counts.push(SentCount {
                provider,
                phone: phone.text,
                messages: positive(messages),
                segments,
                billed,
            });
        }
        for (segments, attempts, repeated) in purged {
            facts.segments += positive(segments);
            facts.attempts += positive(attempts);
            facts.repeated += positive(repeated);
        }
        Ok(Sent { facts, counts })
    }

    /// What became of messages that were sent since an instant: by provider and by the first `digits` of the phones, at
    /// least those of a country, with one of these phones.
    #[boxed]
    pub async fn delivered(
        &self,
        since: Timestamp,
        digits: usize,
    ) -> Result<Vec<(String, String, DeliveredCount)>, StoreError> {
        type Row = (String, LossyText, Option<i64>, Option<i64>);
        let group = format!("provider, {}", phone_prefix(digits));
        let count = |states: &[DeliveryState]| {
            let states: Vec<String> =
                states.iter().map(|state| format!("'{}'", state.as_str())).collect();
            let states = states.join(", ");
            sum(sql::<Integer>(&format!(
                "CASE WHEN delivery_state IN ({states}) THEN 1 ELSE 0 END"
            )))
        };
        let reported =
            [DeliveryState::Delivered, DeliveryState::Undelivered, DeliveryState::Expired];
        let rows: Vec<Row> = self
            .read(
                sms_sent::table
                    .filter(CampaignFilter::All.on(sms_sent::campaign_id))
                    .filter(sms_sent::sent_at.ge(since))
                    .group_by(sql::<Text>(&group))
                    .select((
                        sql::<Text>("provider"),
                        sql::<Text>("MIN(phone)"),
                        count(&reported[..1]),
                        count(&reported),
                    )),
            )
            .await?;
        let count = |(provider, phone, delivered, reported): Row| {
            let [delivered, reported] = [delivered, reported].map(|sum| positive(sum.unwrap_or(0)));
            (provider, phone.text, DeliveredCount { delivered, reported })
        };
        Ok(rows.into_iter().map(count).collect())
    }

    /// Counts failed messages by class, also the cancelled ones.
    #[boxed]
    pub async fn failed_by_class(
        &self,
        campaigns: CampaignFilter,
    ) -> Result<Vec<ClassCount>, StoreError> {
        type Row = (String, i64, Option<Timestamp>, Option<Timestamp>);
        let rows: Vec<Row> = self
            .read(
                sms_failed::table
                    .filter(campaigns.on(sms_failed::campaign_id))
                    .group_by(sms_failed::class)
                    .select((
                        sms_failed::class,
                        count_star(),
                        min(sms_failed::failed_at),
                        max(sms_failed::failed_at),
                    ))
                    .order(sms_failed::class),
            )
            .await?;
        let count = |(class, messages, first_at, last_at): Row| ClassCount {
            class,
            messages: positive(messages),
            first_at: first_at.unwrap_or_default(),
            last_at: last_at.unwrap_or_default(),
        };
        Ok(rows.into_iter().map(count).collect())
    }

    /// Counts what ended in each of `spans` spans of `width`, the first of which begins at `from`. One grouped
    /// statement for each table.
    #[boxed]
    pub async fn outcomes_over_time(
        &self,
        campaigns: CampaignFilter,
        from: Timestamp,
        width: Duration,
        spans: u32,
    ) -> Result<Vec<Outcomes>, StoreError> {
        let (start, width) = (from.as_millis(), millis(width).max(1));
        let end = start + width * i64::from(spans);
        let mut outcomes = vec![Outcomes::default(); spans as usize];
        /// Adds the counts of one table to a field of `outcomes`.
        macro_rules! count {
            ($field:ident, $table:ident, $at:ident, $rows:expr) => {
                // The engines divide whole numbers differently, but agree on `%`.
                let since = format!("{} - {start}", stringify!($at));
                let since = format!("{since} - (({since}) % {width})");
                let counts: Vec<(i64, i64)> = self
                    .read(
                        $rows
                            .filter(campaigns.on($table::campaign_id))
                            .filter($table::$at.ge(start))
                            .filter($table::$at.lt(end))
                            .group_by(sql::<Text>(&since))
                            .select((sql::<BigInt>(&since), count_star())),
                    )
                    .await?;
                for (since, count) in counts {
                    let span = usize::try_from(since / width).unwrap_or(usize::MAX);
                    if let Some(outcomes) = outcomes.get_mut(span) {
                        outcomes.$field += positive(count);
                    }
                }
            };
        }
        count!(sent, sms_sent, sent_at, sms_sent::table);
        let not_cancelled = sms_failed::class.ne(Class::Cancelled.as_str());
        let failed = || sms_failed::table.filter(not_cancelled);
        count!(failed, sms_failed, failed_at, failed());
        let unknown = || sms::table.filter(sms::state.eq(State::Unknown.code()));
        count!(unknown, sms, claimed_at, unknown());
        Ok(outcomes)
    }

    /// The imports of these campaigns, oldest first.
    #[boxed]
    pub async fn lists(&self, campaigns: CampaignFilter) -> Result<Vec<ListCount>, StoreError> {
        self.read(
            import::table
                .filter(campaigns.with_removed(import::campaign_id))
                .order(import::id)
                .select((
                    import::file,
                    import::row_count,
                    import::accepted,
                    import::duplicates,
                    import::suppressed,
                    import::rejected,
                    import::gsm7,
                    import::ucs2,
                    sql::<Nullable<Text>>("COALESCE(template, sample)"),
                )),
        )
        .await
    }
}
