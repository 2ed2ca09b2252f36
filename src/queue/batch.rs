//! Puts the messages of one claim together into requests. The sender says which messages can go
//! together; a request has one permit, which costs as much as all its messages.

use super::{CampaignClaim, ClaimedSms, ProviderClaim};
use crate::limit::{CampaignLimit, Cost, PermitAllocator};
use crate::phone::Phone;
use crate::sms::Sms;

/// The most that the requests of one campaign's claim may hold.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits<'a> {
    pub provider: &'a str,
    pub campaign_id: i64,
    pub max_requests: u32,
    pub max_batch: u32,
    /// The most that one request may cost.
    pub max_cost: i32,
    /// The cost counts segments, not messages.
    pub by_segments: bool,
}

/// Says which request, counted from 0, a message of this many segments goes with; `None` where it has
/// to wait for another claim.
pub type Batcher = Box<dyn FnMut(&Sms, &Phone, i32) -> Option<usize> + Send>;

/// Puts every message into a request of its own.
pub fn alone(limits: &BatchLimits<'_>) -> Batcher {
    let most = limits.max_requests as usize;
    let mut count = 0;
    Box::new(move |_, _, _| {
        let next = (count < most).then_some(count);
        count += 1;
        next
    })
}

/// A message that can be sent. `K` is its key in the database.
pub struct BatchItem<K> {
    pub key: K,
    pub sms: Sms,
    pub phone: Phone,
    pub segments: i32,
}

/// The requests of one campaign's claim.
pub struct Batches<K> {
    batcher: Batcher,
    /// Every message has a request of its own.
    is_alone: bool,
    requests: Vec<(Cost, Vec<BatchItem<K>>)>,
}

impl<K> Batches<K> {
    /// `left` requests may still be made in this claim.
    pub fn begin(
        provider: &ProviderClaim,
        campaign: CampaignClaim,
        left: u32,
        max_cost: i32,
        batcher: &(dyn Fn(&BatchLimits<'_>) -> Batcher + Send + Sync),
    ) -> Self {
        let max_batch = campaign.max_batch.max(1);
        let limits = BatchLimits {
            provider: &provider.provider,
            campaign_id: campaign.campaign_id,
            max_requests: left.min(campaign.max_messages.div_ceil(max_batch)),
            max_batch,
            max_cost,
            by_segments: provider.by_segments,
        };
        let is_alone = max_batch == 1;
        Self {
            batcher: if is_alone {
                alone(&limits)
            } else {
                batcher(&limits)
            },
            is_alone,
            requests: Vec::new(),
        }
    }

    /// Puts the message into a request; returns it where it has to wait.
    pub fn place(&mut self, item: BatchItem<K>) -> Option<BatchItem<K>> {
        let Some(number) = (self.batcher)(&item.sms, &item.phone, item.segments) else {
            return Some(item);
        };
        let cost = Cost::of_message(item.segments);
        match self.requests.get_mut(number) {
            Some((sum, items)) => {
                *sum = sum.plus(cost);
                items.push(item);
            }
            None => self.requests.push((cost, vec![item])),
        }
        None
    }

    /// Gives each request its permit, and calls `note` for each of its messages; returns what was
    /// claimed and what got no permit. `begun` requests belong to the campaigns before.
    pub fn permit(
        self,
        begun: u32,
        allocator: &mut PermitAllocator,
        own: &mut CampaignLimit,
        mut note: impl FnMut(&K, &Sms, &Phone),
    ) -> (Vec<ClaimedSms>, Vec<BatchItem<K>>) {
        let (mut claimed, mut left) = (Vec::new(), Vec::new());
        let mut request = begun;
        for (cost, items) in self.requests {
            // Permits were counted before, but the cost of batches was only estimated.
            let until_us = if self.is_alone || request == begun {
                i64::MAX
            } else {
                allocator.until_us()
            };
            let Some(permit) = allocator.allocate(own, cost, until_us) else {
                left.extend(items);
                continue;
            };
            for item in items {
                note(&item.key, &item.sms, &item.phone);
                let mut sms = item.sms;
                item.phone.as_str().clone_into(&mut sms.phone);
                sms.segments = Some(item.segments);
                claimed.push(ClaimedSms {
                    sms,
                    phone: item.phone,
                    request,
                    permit,
                });
            }
            request += 1;
        }
        (claimed, left)
    }
}

/// How many requests these messages go in.
pub fn count(claimed: &[ClaimedSms]) -> u32 {
    claimed.last().map_or(0, |last| last.request + 1)
}
