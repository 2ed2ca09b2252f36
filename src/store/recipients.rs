//! How often one recipient may be texted, over all campaigns and workers. Each claim leaves a row in
//! `recipient_start`. While its request may still start it counts as of now; once it has ended, as of then,
//! which is never before it started; where it was certainly not accepted, the row is removed.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::queue::{Admission, Fate, Round, Settlement};
use super::schema::recipient_start;
use super::{CHUNK, Store, StoreError};
use crate::phone::Phone;
use crate::sms::{Class, Failure, Sms, Timestamp, millis};

/// What is told of a recipient's earlier claims: message, claim, when it ended, and the message again where that
/// claim is still sending.
pub(super) type Start = (i64, i64, Option<i64>, Option<i64>);

/// Starts by phone, in milliseconds; those of messages that have to wait lie ahead.
#[derive(Default)]
pub(super) struct Promised(HashMap<String, Vec<i64>>);

impl Promised {
    pub(super) fn of(&self, phone: &str) -> &[i64] {
        self.0.get(phone).map_or(&[], Vec::as_slice)
    }

    pub(super) fn add(&mut self, phone: &str, at: i64) {
        self.0.entry(phone.to_owned()).or_default().push(at);
    }

    pub(super) fn knows(&self, phone: &str) -> bool {
        self.0.contains_key(phone)
    }

    pub(super) fn learn(&mut self, phone: &str) {
        self.0.entry(phone.to_owned()).or_default();
    }
}

/// The latest that a request can have started which has ended by now, whoever's clock says so.
pub(super) fn ended_at(round: &Round) -> i64 {
    round.now.plus(round.reach).as_millis()
}

/// Whether the message may start beside these starts to its phone; if not, what becomes of it, and the start that
/// it is promised.
pub(super) fn judge(
    round: &Round,
    sms: &Sms,
    phone: &Phone,
    starts: &[i64],
) -> Option<(Admission, i64)> {
    let now = round.now.minus(round.reach).as_millis();
    let at = earliest(round, starts)?;
    if at <= now {
        return None;
    }
    let until = Timestamp::from_millis(at).plus(round.reach);
    let admission = if sms.expires_at.is_some_and(|expires_at| expires_at <= until) {
        let why = "its time runs out before its recipient may be texted again";
        Admission::Refuse(Failure::new(Class::Expired, why))
    } else {
        let phone = phone.clone();
        Admission::Wait { phone, until }
    };
    Some((admission, until.as_millis()))
}

/// The first moment at which no window would hold too many.
fn earliest(round: &Round, starts: &[i64]) -> Option<i64> {
    let mut newest_first = starts.to_vec();
    newest_first.sort_unstable_by(|one, other| other.cmp(one));
    let caps = round.caps.0.iter();
    caps.filter_map(|cap| {
        let nth = usize::try_from(cap.limit.get()).ok()?.checked_sub(1)?;
        let start = newest_first.get(nth)?;
        Some(start.saturating_add(millis(cap.window)))
    })
    .max()
}

/// Whether the claim's request may have reached the recipient; `None` where it says nothing of that.
pub(super) fn may_have_reached(settlement: &Settlement) -> Option<bool> {
    match &settlement.fate {
        Fate::Sent(_) | Fate::Unknown(_) | Fate::Ready { in_doubt: true, .. } => Some(true),
        Fate::Failed(_) | Fate::FoundRejected(_) | Fate::Ready { .. } => Some(false),
        Fate::Refused(_) | Fate::Refunded => None,
    }
}

impl Store {
    /// Forgets some of the starts that ended before a moment; returns how many.
    pub async fn forget_starts(&self, before: Timestamp) -> Result<u64, StoreError> {
        let ends: Vec<Option<i64>> = reading!(self, |conn| recipient_start::table
            .filter(recipient_start::ended_at.lt(before.as_millis()))
            .order(recipient_start::ended_at)
            .limit(CHUNK)
            .select(recipient_start::ended_at)
            .load(conn))?;
        let Some(Some(last)) = ends.last() else {
            return Ok(0);
        };
        let forgotten: usize = writing!(self, |conn| diesel::delete(
            recipient_start::table.filter(recipient_start::ended_at.le(*last))
        )
        .execute(conn))?;
        Ok(forgotten as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::store::pace::GRACE;

    fn round(caps: &str) -> Round {
        Round {
            worker_id: 1,
            now: Timestamp::from_millis(100_000),
            reach: GRACE,
            settlements: Vec::new(),
            halts: Vec::new(),
            stops: Vec::new(),
            refill: false,
            claims: Vec::new(),
            caps: caps.parse().expect("rates"),
            fill: Arc::new(crate::store::calls::alone),
            admit: Arc::new(|_| Admission::Refuse(Failure::new(Class::Content, "never asked"))),
        }
    }

    #[test]
    fn the_strictest_cap_decides() {
        let starts = [10_000, 60_000, 90_000];
        for (caps, at) in [
            ("1/30s", Some(120_000)),
            ("2/30s", Some(90_000)),
            ("3/60s", Some(70_000)),
            ("4/day", None),
            ("1/30s,3/60s", Some(120_000)),
        ] {
            assert_eq!(earliest(&round(caps), &starts), at, "{caps}");
        }
    }

    proptest! {
        #[test]
        fn whoever_starts_when_told_to_overfills_no_window(
            count in 1_u32..4,
            window in 1_i64..20,
            hurry in prop::collection::vec(0_i64..30_000, 1..30),
        ) {
            let caps = round(&format!("{count}/{window}s"));
            let mut starts: Vec<i64> = Vec::new();
            let mut now = 0;
            for wait in hurry {
                now = earliest(&caps, &starts).map_or(now + wait, |at| at.max(now + wait));
                starts.push(now);
            }
            let count = count as usize;
            let full = starts.windows(count + 1).any(|some| some[count] < some[0] + window * 1_000);
            prop_assert!(!full, "{starts:?}");
        }
    }
}
