//! The actions on campaigns, and in which states each is possible.

use smsq_store::{Campaign, CampaignStatus};

use super::OperationError;

/// What people do with a campaign and its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CampaignAction {
    Pause,
    Resume,
    Cancel,
    /// Its limit, priority, provider, sender, window or budget.
    Set,
    /// Put failed messages back into the queue.
    Retry,
    /// Put unknown messages back into the queue.
    RetryUnknown,
    /// Decide what became of unknown messages.
    Settle,
    /// Let its messages start, after another person has looked at them.
    Approve,
    /// Say why they do not start.
    Reject,
}

/// Whether an action is possible in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permitted {
    Yes,
    /// The campaign is in the state that the action leads to.
    Already,
    /// With what cannot be done, as the end of a sentence.
    No(&'static str),
}

/// The table of all actions and states.
pub(super) const fn permit(action: CampaignAction, state: CampaignStatus) -> Permitted {
    use CampaignAction::{
        Approve, Cancel, Pause, Reject, Resume, Retry, RetryUnknown, Set, Settle,
    };
    use CampaignStatus::{Active, Cancelled, Paused, Stopped, Unapproved};
    match (action, state) {
        (Pause, Active | Stopped | Unapproved)
        | (Resume, Paused | Stopped | Cancelled)
        | (
            Cancel | Set | Retry | RetryUnknown | Approve | Reject,
            Active | Paused | Stopped | Unapproved,
        )
        | (Settle, _) => Permitted::Yes,
        (Pause, Paused) | (Resume, Active) | (Cancel, Cancelled) => Permitted::Already,
        (Pause, Cancelled) => Permitted::No("it has no messages to pause"),
        (Approve | Reject, Cancelled) => Permitted::No("it does not wait for approval"),
        (Resume, Unapproved) => Permitted::No("its messages wait for approval"),
        (Set, Cancelled) => Permitted::No("its settings cannot be changed"),
        (Retry | RetryUnknown, Cancelled) => Permitted::No("its messages cannot be retried"),
    }
}

impl CampaignAction {
    /// The verb in the audit log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
            Self::Set => "set",
            Self::Retry => "retry",
            Self::RetryUnknown => "retry-unknown",
            Self::Settle => "settle",
            Self::Approve => "approve",
            Self::Reject => "reject",
        }
    }

    /// Whether it is possible for `campaign` in the state in which it was read. What waits can be approved in any state.
    pub const fn permitted(self, campaign: &Campaign) -> Permitted {
        match self {
            Self::Approve | Self::Reject if !campaign.approval.has_waiting() => {
                Permitted::No("it does not wait for approval")
            }
            _ => permit(self, campaign.state),
        }
    }

    /// Fails if it is not possible for `campaign` in the state in which it was read.
    pub fn check(self, campaign: &Campaign) -> Result<(), OperationError> {
        match self.permitted(campaign) {
            Permitted::No(_) if matches!(self, Self::Approve | Self::Reject) => {
                Err(OperationError::Refused(Refused::NotWaiting {
                    campaign: campaign.name.clone(),
                }))
            }
            Permitted::No(_) if campaign.state == CampaignStatus::Unapproved => {
                Err(OperationError::Refused(Refused::Unapproved {
                    campaign: campaign.name.clone(),
                }))
            }
            Permitted::No(reason) => Err(OperationError::Refused(Refused::Cancelled {
                campaign: campaign.name.clone(),
                reason,
            })),
            Permitted::Yes | Permitted::Already => Ok(()),
        }
    }

    /// The states in which it is possible.
    pub(super) fn states(self) -> Vec<CampaignStatus> {
        let mut states = CampaignStatus::ALL.to_vec();
        states.retain(|state| permit(self, *state) == Permitted::Yes);
        states
    }

    /// The state that it leads to, and what is done to the campaign.
    pub(super) const fn target(self) -> Option<(CampaignStatus, &'static str)> {
        match self {
            Self::Pause => Some((CampaignStatus::Paused, "paused")),
            Self::Resume => Some((CampaignStatus::Active, "resumed")),
            Self::Cancel => Some((CampaignStatus::Cancelled, "cancelled")),
            Self::Set
            | Self::Retry
            | Self::RetryUnknown
            | Self::Settle
            | Self::Approve
            | Self::Reject => None,
        }
    }
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("campaign `{campaign}` is cancelled: {reason}")]
    Cancelled { campaign: String, reason: &'static str },
    #[error("campaign `{campaign}` is not paused: its messages wait for approval")]
    Unapproved { campaign: String },
    #[error("campaign `{campaign}` does not wait for approval")]
    NotWaiting { campaign: String },
    #[error(
        "`{who}` added messages to campaign `{campaign}` or changed its settings, and cannot approve it"
    )]
    OwnMessages { campaign: String, who: String },
    #[error(
        "campaign `{campaign}` has changed: it has other messages or settings than those that were looked at"
    )]
    ChangedMeanwhile { campaign: String },
    #[error("campaign `{campaign}` is {state}, and its state cannot be changed{reason}")]
    Unchangeable { campaign: String, state: &'static str, reason: String },
    #[error(
        "the name `{campaign}` belongs to schedule `{schedule}`, which alone adds messages to its campaigns"
    )]
    OfSchedule { campaign: String, schedule: String },
    #[error("campaign `{campaign}` has spent {spent}, which is more than a budget of {budget}")]
    Spent { campaign: String, budget: String, spent: String },
    #[error(
        "nothing would be sent: the window {window} opens at {opens_at}, after all messages of campaign `{campaign}` \
         have expired"
    )]
    OpensTooLate { campaign: String, window: String, opens_at: String },
}

impl Refused {
    /// New messages of a cancelled campaign.
    pub fn takes_no_messages(campaign: &str) -> Self {
        Self::Cancelled { campaign: campaign.to_owned(), reason: "it takes no messages" }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cancelled { campaign, .. } => Some(format!(
                "`smsq resume --campaign {campaign}` makes it active again; its cancelled messages stay cancelled"
            )),
            Self::Spent { campaign, .. } => {
                Some(format!("set a higher one, or `smsq pause --campaign {campaign}`"))
            }
            Self::Unapproved { campaign } => Some(format!(
                "another person looks at them with `smsq approve --campaign {campaign}`"
            )),
            Self::OfSchedule { schedule, .. } => {
                Some(format!("choose a name that does not begin with `{schedule}/`"))
            }
            Self::OwnMessages { .. } => Some("another person has to approve it".to_owned()),
            Self::ChangedMeanwhile { .. } => Some("look at it again".to_owned()),
            Self::NotWaiting { .. } | Self::Unchangeable { .. } | Self::OpensTooLate { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_resume_leads_out_of_the_cancelled_state() {
        use CampaignAction::{Cancel, Pause, Resume, Retry, RetryUnknown, Set, Settle};
        let cancelled = |action| permit(action, CampaignStatus::Cancelled);
        assert_eq!(cancelled(Resume), Permitted::Yes);
        assert_eq!(cancelled(Settle), Permitted::Yes);
        assert_eq!(cancelled(Cancel), Permitted::Already);
        for action in [Pause, Set, Retry, RetryUnknown] {
            assert!(matches!(cancelled(action), Permitted::No(_)), "{action:?}");
            assert!(!action.states().contains(&CampaignStatus::Cancelled));
        }
    }

    #[test]
    fn nothing_is_refused_in_other_states() {
        use CampaignAction::{Cancel, Pause, Resume, Retry, RetryUnknown, Set, Settle};
        for action in [Pause, Resume, Cancel, Set, Retry, RetryUnknown, Settle] {
            for state in CampaignStatus::ALL {
                let is_refused = matches!(permit(action, state), Permitted::No(_));
                // What waits for approval is not resumed, but approved.
                let waits = action == Resume && state == CampaignStatus::Unapproved;
                assert_eq!(waits, state == CampaignStatus::Unapproved && is_refused);
                assert!(!is_refused || waits || state == CampaignStatus::Cancelled);
            }
        }
    }
}
