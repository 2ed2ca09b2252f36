//! Which messages of a campaign go in one request. The provider says what it can carry; a message that
//! was attempted before, or is in doubt, goes alone, so that it cannot fail the same batch twice.

use std::sync::Arc;

use crate::phone::Phone;
use crate::provider::{BatchKey, Message, Provider};
use crate::queue::batch::BatchLimits;
use crate::sms::Sms;

/// How many requests with room left are kept open. More than one, because neighbours in a list often
/// cannot go together: two messages to one phone.
const OPEN: usize = 4;

/// Builds the provider's message out of a row. It takes content and reference, so that they are kept
/// once.
pub(super) fn take_message(sms: &mut Sms, phone: Phone, from: Option<String>) -> Message {
    Message {
        phone,
        content: std::mem::take(&mut sms.content),
        reference: std::mem::take(&mut sms.reference),
        from,
        params: serde_json::from_str(&sms.params).unwrap_or_default(),
    }
}

/// A request with room left.
struct OpenRequest {
    number: usize,
    key: BatchKey,
    phones: Vec<Phone>,
    cost: i32,
}

/// Puts the messages of one campaign's claim into requests.
pub(super) struct ProviderBatcher {
    provider: Arc<Provider>,
    from: Option<String>,
    max_requests: usize,
    max_batch: usize,
    max_cost: i32,
    by_segments: bool,
    begun: usize,
    open: Vec<OpenRequest>,
}

impl ProviderBatcher {
    pub(super) fn new(
        provider: Arc<Provider>,
        from: Option<String>,
        limits: &BatchLimits<'_>,
    ) -> Self {
        Self {
            max_batch: provider.max_batch().min(limits.max_batch as usize),
            provider,
            from,
            max_requests: limits.max_requests as usize,
            max_cost: limits.max_cost,
            by_segments: limits.by_segments,
            begun: 0,
            open: Vec::new(),
        }
    }

    /// The number of the message's request; `None` where it has to wait for another claim.
    pub(super) fn place(&mut self, sms: &Sms, phone: &Phone, segments: i32) -> Option<usize> {
        let cost = if self.by_segments { segments.max(1) } else { 1 };
        let goes_alone = sms.attempts > 0 || sms.in_doubt || self.max_batch < 2;
        let key = if goes_alone {
            None
        } else {
            let message = take_message(&mut sms.clone(), phone.clone(), self.from.clone());
            self.provider.batch_key(&message)
        };
        let fits = |open: &&mut OpenRequest| {
            open.cost.saturating_add(cost) <= self.max_cost
                && Some(&open.key) == key.as_ref()
                && !open.phones.contains(phone)
        };
        if let Some(open) = self.open.iter_mut().find(fits) {
            let number = open.number;
            open.cost += cost;
            open.phones.push(phone.clone());
            let max_batch = self.max_batch;
            self.open.retain(|open| open.phones.len() < max_batch);
            return Some(number);
        }
        if self.begun == self.max_requests {
            return None;
        }
        let number = self.begun;
        self.begun += 1;
        if let Some(key) = key {
            if self.open.len() == OPEN {
                self.open.remove(0);
            }
            self.open.push(OpenRequest {
                number,
                key,
                phones: vec![phone.clone()],
                cost,
            });
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batcher(
        max_batch: u32,
        max_requests: u32,
        max_cost: i32,
        by_segments: bool,
    ) -> ProviderBatcher {
        let section = "kind = 'sandbox'\nurl = 'http://world.invalid'\nbatch = { per_call = 5 }";
        let section: toml::Table = section.parse().expect("toml");
        let provider = Provider::from_section("world", &section, &|_| None).expect("a provider");
        let limits = BatchLimits {
            provider: "world",
            campaign_id: 1,
            max_requests,
            max_batch,
            max_cost,
            by_segments,
        };
        ProviderBatcher::new(Arc::new(provider), None, &limits)
    }

    fn sms(number: i64) -> Sms {
        Sms {
            id: number,
            campaign_id: 1,
            phone: format!("+8613800000{number:03}"),
            content: "hello".to_owned(),
            params: "{}".to_owned(),
            segments: Some(1),
            in_doubt: false,
            expires_at: None,
            attempts: 0,
            claim: 1,
            reference: format!("r{number}"),
        }
    }

    fn place(batcher: &mut ProviderBatcher, sms: &Sms, segments: i32) -> Option<usize> {
        let phone = Phone::parse(&sms.phone, None).expect("a phone");
        batcher.place(sms, &phone, segments)
    }

    fn placed(
        batcher: &mut ProviderBatcher,
        numbers: impl IntoIterator<Item = i64>,
    ) -> Vec<Option<usize>> {
        let numbers = numbers.into_iter();
        numbers
            .map(|number| place(batcher, &sms(number), 1))
            .collect()
    }

    #[test]
    fn requests_are_filled_in_order_and_surplus_waits() {
        let calls = placed(&mut batcher(3, 2, 100, false), 1..=7);
        assert_eq!(
            calls,
            [0, 0, 0, 1, 1, 1]
                .map(Some)
                .into_iter()
                .chain([None])
                .collect::<Vec<_>>()
        );
        // The provider's own maximum.
        let calls = placed(&mut batcher(100, 2, 100, false), 1..=6);
        assert_eq!(calls.last(), Some(&Some(1)));
    }

    #[test]
    fn second_message_to_a_phone_goes_in_the_next_request() {
        let mut batcher = batcher(5, 9, 100, false);
        let calls: Vec<_> = (1..=10_i64)
            .map(|number| {
                let mut second = sms((number + 1) / 2);
                second.reference = format!("r{number}");
                place(&mut batcher, &second, 1)
            })
            .collect();
        let expected: Vec<_> = (1..=10).map(|number| Some((number + 1) % 2)).collect();
        assert_eq!(calls, expected);
    }

    #[test]
    fn attempted_or_doubtful_message_goes_alone() {
        let mut batcher = batcher(5, 9, 100, false);
        let mut tried = sms(2);
        tried.attempts = 1;
        let mut in_doubt = sms(3);
        in_doubt.in_doubt = true;
        let calls = [&sms(1), &tried, &in_doubt, &sms(4)].map(|one| place(&mut batcher, one, 1));
        assert_eq!(calls, [0, 1, 2, 0].map(Some));
    }

    #[test]
    fn request_keeps_to_its_cost_unless_one_message_exceeds_it() {
        let mut batcher = batcher(5, 9, 3, true);
        let calls = [(1, 2), (2, 2), (3, 1), (4, 7), (5, 1)]
            .map(|(number, segments)| place(&mut batcher, &sms(number), segments));
        assert_eq!(calls, [0, 1, 0, 2, 1].map(Some));
    }
}
