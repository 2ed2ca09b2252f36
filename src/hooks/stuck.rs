//! Decides whether a campaign is stuck: none of its messages is accepted, although some should be.

use std::time::Duration;

use smsq_message::sms::Timestamp;
use smsq_store::{CampaignStatus, QueuedCampaign, WatchedCampaign};

/// When the first message of a campaign is due that no worker is sending.
fn ready_at(queued: &QueuedCampaign) -> Option<Timestamp> {
    let lanes = queued.lanes.iter().filter_map(|lane| lane.ready_at);
    queued.ready_at.into_iter().chain(lanes).min()
}

/// What was seen of a campaign besides its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// When a message was accepted last, if that was within the time after which a campaign is stuck.
    pub(super) accepted_at: Option<Timestamp>,
    /// A worker has paused it.
    pub(super) is_paused_by_worker: bool,
    pub(super) stuck_after: Duration,
    pub(super) now: Timestamp,
}

/// What is known of a campaign that was watched, after a look at it: whether it is stuck since this look is in
/// `stuck_at`.
///
/// Messages that wait for a retry keep a campaign due; those that were never due do not begin it. A pause by a person, an
/// approval that is missing and a closed window end it. In a window that differs from recipient to recipient the hours of
/// the fallback zone count: workers postpone the messages of the others, which are not due then. A campaign that a worker
/// has paused or stopped counts as due, because it waits for a person.
pub(super) fn look(
    known: &WatchedCampaign,
    queued: &QueuedCampaign,
    seen: Seen,
) -> WatchedCampaign {
    let Seen { accepted_at, is_paused_by_worker, stuck_after, now } = seen;
    let campaign = &queued.campaign;
    let may_send = match campaign.state {
        CampaignStatus::Stopped => true,
        CampaignStatus::Paused => is_paused_by_worker,
        CampaignStatus::Active | CampaignStatus::Unapproved | CampaignStatus::Cancelled => {
            campaign.may_send()
        }
    };
    let window = campaign.window.as_ref();
    let is_open = window.is_none_or(|window| window.contains(now));
    let is_within = |wait: Duration| {
        queued.is_sending || ready_at(queued).is_some_and(|at| at <= now.plus(wait))
    };
    let due_since = match known.due_since {
        _ if !may_send || !is_open => None,
        Some(since) => is_within(stuck_after).then_some(since),
        None => is_within(Duration::ZERO).then_some(now),
    };
    let mut stuck_at = known.stuck_at.filter(|at| {
        let is_accepting = accepted_at.is_some_and(|accepted| accepted > *at);
        due_since.is_some() && !is_accepting
    });
    if let Some(since) = due_since
        && stuck_at.is_none()
        && now.since(accepted_at.map_or(since, |accepted| accepted.max(since))) >= stuck_after
    {
        stuck_at = Some(now);
    }
    WatchedCampaign { due_since, stuck_at, ..known.clone() }
}

#[cfg(test)]
mod tests {
    use smsq_store::{ApprovalGate, Campaign, CampaignSettings};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_763_715_600_000);
    const MINUTE: Duration = Duration::from_secs(60);
    const STUCK_AFTER: Duration = Duration::from_secs(600);

    fn before(minutes: u32) -> Timestamp {
        NOW.minus(MINUTE * minutes)
    }

    fn queued(state: CampaignStatus, ready_at: Option<Timestamp>) -> QueuedCampaign {
        QueuedCampaign {
            campaign: Campaign {
                id: 2,
                name: "c".to_owned(),
                settings: CampaignSettings::default(),
                state,
                state_reason: None,
                approval: if state == CampaignStatus::Unapproved {
                    ApprovalGate::AllWait
                } else {
                    ApprovalGate::Open
                },
                approval_reason: None,
                created_at: before(60),
            },
            ready_at,
            lanes: Vec::new(),
            is_sending: false,
            has_unknown: false,
        }
    }

    fn watched(due_since: Option<Timestamp>, stuck_at: Option<Timestamp>) -> WatchedCampaign {
        WatchedCampaign { campaign_id: 2, opened_at: before(60), due_since, stuck_at }
    }

    fn after(
        known: &WatchedCampaign,
        queued: &QueuedCampaign,
        accepted: Option<u32>,
    ) -> WatchedCampaign {
        let seen = Seen {
            accepted_at: accepted.map(before),
            is_paused_by_worker: false,
            stuck_after: STUCK_AFTER,
            now: NOW,
        };
        look(known, queued, seen)
    }

    #[test]
    fn campaign_is_stuck_once_per_episode() {
        let due = queued(CampaignStatus::Active, Some(before(30)));
        let begun = after(&watched(None, None), &due, None);
        assert_eq!(begun, watched(Some(NOW), None));
        let since = Some(before(10));
        let stuck = after(&watched(since, None), &due, None);
        assert_eq!(stuck, watched(since, Some(NOW)));
        let earlier = watched(Some(before(20)), Some(before(9)));
        assert_eq!(after(&earlier, &due, None), earlier);
        // It was accepting, and stopped again.
        let accepting = after(&earlier, &due, Some(5));
        assert_eq!(accepting, watched(Some(before(20)), None));
        let again = watched(Some(before(30)), None);
        assert_eq!(after(&again, &due, Some(10)).stuck_at, Some(NOW));
    }

    #[test]
    fn recent_acceptance_or_due_time_is_not_stuck() {
        let due = queued(CampaignStatus::Active, Some(before(30)));
        for (due_since, accepted) in [(before(30), Some(9)), (before(9), None)] {
            let known = watched(Some(due_since), None);
            assert_eq!(after(&known, &due, accepted).stuck_at, None);
        }
    }

    #[test]
    fn wait_for_a_retry_counts_and_a_schedule_does_not() {
        let later = |minutes| queued(CampaignStatus::Active, Some(NOW.plus(MINUTE * minutes)));
        let known = watched(Some(before(10)), None);
        assert_eq!(after(&known, &later(9), None).stuck_at, Some(NOW));
        assert_eq!(after(&known, &later(11), None), watched(None, None));
        let fresh = watched(None, None);
        assert_eq!(after(&fresh, &later(9), None), fresh);
    }

    #[test]
    fn closed_window_ends_an_episode() {
        // It is 09:00 in UTC, 10:00 in Berlin and 04:00 in New York.
        let known = watched(Some(before(20)), None);
        for (window, is_stuck) in [
            ("09:00-20:00 daily UTC", true),
            ("10:30-20:00 daily Europe/Berlin", false),
            ("09:00-20:00 daily recipient Europe/Berlin", true),
            ("09:00-20:00 daily recipient America/New_York", false),
            ("09:00-20:00 daily column Europe/Berlin", true),
        ] {
            let mut due = queued(CampaignStatus::Active, Some(before(30)));
            due.campaign.settings.window = Some(window.parse().expect("a window"));
            assert_eq!(after(&known, &due, None).stuck_at.is_some(), is_stuck, "{window}");
        }
    }

    #[test]
    fn pause_ends_an_episode_and_a_stop_by_a_worker_does_not() {
        let known = watched(Some(before(20)), None);
        for (state, is_stuck) in [
            (CampaignStatus::Paused, false),
            (CampaignStatus::Unapproved, false),
            (CampaignStatus::Cancelled, false),
            (CampaignStatus::Stopped, true),
        ] {
            let found = after(&known, &queued(state, Some(before(30))), None);
            assert_eq!(found.stuck_at.is_some(), is_stuck, "{state:?}");
            assert_eq!(found.due_since.is_some(), is_stuck, "{state:?}");
        }
        let seen = Seen {
            accepted_at: None,
            is_paused_by_worker: true,
            stuck_after: STUCK_AFTER,
            now: NOW,
        };
        let paused = queued(CampaignStatus::Paused, Some(before(30)));
        assert_eq!(look(&known, &paused, seen).stuck_at, Some(NOW));
    }
}
