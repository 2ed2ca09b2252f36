//! Takes over what the database says of campaigns and of pauses.

use std::collections::HashSet;
use std::sync::Arc;

use smsq_lifecycle::admission::{AdmissionRules, ProviderRules};
use smsq_message::phone::Dialling;
use smsq_message::route::Division;
use smsq_message::route::sender_pool::SendersOff;
use smsq_provider::ContentMode;
use smsq_store::{Campaign, QueuedCampaign};

use super::{Dispatcher, changes_campaigns};
use crate::campaign_state::{SentBy, Served};
use crate::maintenance::DatabaseSnapshot;

impl Dispatcher {
    /// Takes over what the database says of campaigns and providers.
    pub(super) fn take_snapshot(&mut self, snapshot: &DatabaseSnapshot) {
        let (now, tolerance) = (self.context.clock.now(), self.timing.tolerance);
        let mut served: Vec<Vec<Served>> = self.providers.iter().map(|_| Vec::new()).collect();
        let mut unserved = Vec::new();
        for queued in &snapshot.queued {
            let providers = self.providers_of(&queued.campaign);
            if providers.is_empty() && queued.is_unfinished() {
                unserved.push(queued.campaign.clone());
            }
            let sent_by = self.sent_by(queued, &snapshot.senders_off);
            for index in providers {
                served[index].push(Served { queued: queued.clone(), sent_by: sent_by.clone() });
            }
        }
        let all: HashSet<i64> = snapshot.queued.iter().map(|queued| queued.campaign.id).collect();
        self.take_unserved(unserved);
        let mut admission = AdmissionRules {
            dialling: Dialling {
                countries: self.context.settings.countries,
                ..Dialling::from(self.context.settings.default_region)
            },
            ..AdmissionRules::default()
        };
        for (state, served) in self.providers.iter_mut().zip(served) {
            let auto_pause = self.context.settings.auto_pause;
            state.refresh_campaigns(served, &all, auto_pause, now);
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
            let provider = state.provider();
            let rules = ProviderRules {
                resends: self.context.resend_rule(provider),
                by_template: provider.capabilities().sends == ContentMode::Template,
            };
            let name = provider.name();
            admission.providers.insert(name.to_owned(), rules);
            let mut own =
                snapshot.pauses.iter().filter(|pause| pause.account.name() == provider.account());
            let pause = own.find(|pause| pause.sender.is_none());
            state.take_pause(pause, now);
        }
        self.admission = Arc::new(admission);
        self.lookups.take_campaigns(&snapshot.queued);
        // Where the run may be over, that is decided first.
        if self.check_quiet(snapshot) {
            self.lookups.start(&self.providers, &mut self.tasks);
        }
    }

    /// The providers that send a campaign, by their indices: its own, or those of its route.
    pub(super) fn providers_of(&self, campaign: &Campaign) -> Vec<usize> {
        let names = self.context.settings.providers_of(campaign);
        let indices = names.into_iter().map(|name| self.provider_index(name));
        indices.collect::<Option<_>>().unwrap_or_default()
    }

    /// Who sends the messages of a campaign, with the providers that are unavailable now.
    fn sent_by(&self, queued: &QueuedCampaign, off: &SendersOff) -> SentBy {
        let Some(route) = self.context.settings.route_of(&queued.campaign) else {
            return SentBy::OneSender;
        };
        let numbers = queued.lanes.iter().map(|lane| {
            let owner = (lane.provider.clone(), lane.sender.clone());
            (owner, lane.number)
        });
        let (now, patience) = (self.context.clock.now(), route.fallback_after());
        let division = Division::new(route, &numbers.collect(), off).map(|division| {
            division.with_outages(|name| {
                let state = &self.providers[self.provider_index(name)?];
                state.outage(now, patience)
            })
        });
        SentBy::Route(division.map(Arc::new))
    }

    fn take_unserved(&mut self, unserved: Vec<Campaign>) {
        for campaign in &unserved {
            let is_new = self.unserved.iter().all(|known| known.id != campaign.id);
            if is_new && campaign.may_send() {
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
