//! Takes over what the database says of campaigns and of pauses.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Dispatcher, changes_campaigns};
use crate::phone::Dialling;
use crate::provider::ContentMode;
use crate::queue::admission::AdmissionRules;
use crate::sender::maintenance::DatabaseSnapshot;
use crate::store::{Campaign, CampaignStatus, QueuedCampaign};

impl Dispatcher {
    /// Takes over what the database says of campaigns and providers.
    pub(super) fn take_snapshot(&mut self, snapshot: &DatabaseSnapshot) {
        let (now, tolerance) = (self.context.clock.now(), self.timing.tolerance);
        let mut served: Vec<Vec<QueuedCampaign>> = vec![Vec::new(); self.providers.len()];
        let mut unserved = Vec::new();
        for queued in &snapshot.queued {
            let provider = self.context.settings.provider_of(&queued.campaign);
            match provider.and_then(|name| self.provider_index(name)) {
                Some(index) => served[index].push(queued.clone()),
                None if queued.is_unfinished() => unserved.push(queued.campaign.clone()),
                None => {}
            }
        }
        let all: HashSet<i64> = snapshot
            .queued
            .iter()
            .map(|queued| queued.campaign.id)
            .collect();
        self.take_unserved(unserved);
        let mut admission = AdmissionRules {
            dialling: Dialling {
                countries: self.context.settings.countries,
                ..Dialling::from(self.context.settings.default_region)
            },
            ..AdmissionRules::default()
        };
        for (state, served) in self.providers.iter_mut().zip(served) {
            let ids: Vec<i64> = served.iter().map(|queued| queued.campaign.id).collect();
            let (off, auto_pause) = (&snapshot.senders_off, self.context.settings.auto_pause);
            state.refresh_campaigns(served, &all, off, auto_pause, now);
            for campaign in state.campaigns_mut() {
                campaign.check_window(now, tolerance);
                if let Some(division) = campaign.division() {
                    let division = Arc::clone(division);
                    admission.divisions.insert(campaign.id(), division);
                }
                if let Some(window) = &campaign.campaign().window {
                    admission.windows.insert(campaign.id(), window.clone());
                }
            }
            let resends = self.context.resend_rule(state.provider());
            admission
                .resends
                .extend(ids.iter().map(|id| (*id, resends)));
            if state.provider().capabilities().sends == ContentMode::Template {
                admission.by_template.extend(ids);
            }
            let name = state.provider().name();
            let mut own = snapshot
                .pauses
                .iter()
                .filter(|pause| pause.provider == name);
            let pause = own.find(|pause| pause.sender.is_none());
            state.take_pause(pause, now);
        }
        self.admission = Arc::new(admission);
        // Where the run may be over, that is decided first.
        if self.check_quiet(snapshot) {
            self.lookups.start(&self.providers, &mut self.tasks);
        }
    }

    fn take_unserved(&mut self, unserved: Vec<Campaign>) {
        for campaign in &unserved {
            let is_new = self.unserved.iter().all(|known| known.id != campaign.id);
            if is_new && campaign.state == CampaignStatus::Active {
                let (campaign, reason) = (&campaign.name, self.why_unserved(campaign));
                tracing::warn!(campaign, reason, "a campaign cannot be sent by this worker");
            }
        }
        self.unserved = unserved;
    }

    pub(super) fn why_unserved(&self, campaign: &Campaign) -> String {
        match self.context.settings.provider_of(campaign) {
            Some(provider) => {
                format!("this worker started without its provider `{provider}`")
            }
            None => "it has no provider, and there is no `default_provider`".to_owned(),
        }
    }

    /// Whether the snapshot was made after this worker's last changes, which are not committed yet while
    /// they are in the next or in the running commit.
    pub(super) fn is_current(&self, snapshot: &DatabaseSnapshot) -> bool {
        let running = self.committer.committing();
        snapshot.read_at >= self.changed_at
            && self.results.campaign_stops.is_empty()
            && self.results.pauses.is_empty()
            && running.is_none_or(|batch| !changes_campaigns(batch))
    }
}
