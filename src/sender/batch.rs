//! Which messages of a campaign go together in one request. The provider says what it can carry; a message of
//! which an attempt counts, or that is in doubt, goes alone, so that nobody spoils the same company twice.

use std::collections::HashMap;
use std::sync::Arc;

use super::dispatcher::Dispatcher;
use crate::phone::Phone;
use crate::provider::{Message, Provider};
use crate::queue::batch::{BatchLimits, Batcher, alone};
use crate::sms::Sms;
use crate::store::CommitBatch;

/// So many calls wait for company at once. More than one, because neighbours in a list often cannot go
/// together: two messages to one phone.
const OPEN: usize = 4;

/// The message as its provider needs to know it.
pub(super) fn message(sms: &Sms, phone: &Phone, from: Option<String>) -> Message {
    Message {
        phone: phone.clone(),
        content: sms.content.clone(),
        reference: sms.reference.clone(),
        from,
        params: serde_json::from_str(&sms.params).unwrap_or_default(),
    }
}

/// A call that has room left.
struct Open {
    number: usize,
    messages: Vec<Message>,
    cost: i32,
}

/// The calls of one ask.
struct Filling {
    provider: Arc<Provider>,
    from: Option<String>,
    calls: usize,
    max_batch: usize,
    cost: i32,
    by_segments: bool,
    begun: usize,
    open: Vec<Open>,
}

impl Filling {
    fn new(provider: Arc<Provider>, from: Option<String>, terms: &BatchLimits<'_>) -> Self {
        Self {
            max_batch: provider.most_per_call().min(terms.max_batch as usize),
            provider,
            from,
            calls: terms.max_requests as usize,
            cost: terms.max_cost,
            by_segments: terms.by_segments,
            begun: 0,
            open: Vec::new(),
        }
    }

    fn place(&mut self, sms: &Sms, phone: &Phone, segments: i32) -> Option<usize> {
        let cost = if self.by_segments { segments.max(1) } else { 1 };
        let message = message(sms, phone, self.from.clone());
        let goes_alone = sms.attempts > 0 || sms.in_doubt;
        let fits = |open: &&mut Open| {
            open.cost.saturating_add(cost) <= self.cost
                && self.provider.joins(&open.messages, &message)
        };
        if !goes_alone && let Some(open) = self.open.iter_mut().find(fits) {
            let number = open.number;
            open.cost += cost;
            open.messages.push(message);
            self.open
                .retain(|open| open.messages.len() < self.max_batch);
            return Some(number);
        }
        if self.begun == self.calls {
            return None;
        }
        let number = self.begun;
        self.begun += 1;
        if !goes_alone && self.max_batch > 1 {
            if self.open.len() == OPEN {
                self.open.remove(0);
            }
            self.open.push(Open {
                number,
                messages: vec![message],
                cost,
            });
        }
        Some(number)
    }
}

impl Dispatcher {
    /// Lets the round put messages together, where any ask wants that.
    pub(super) fn let_fill(&self, round: &mut CommitBatch) {
        let asks = round.claims.iter().flat_map(|route| &route.campaigns);
        let wanted: Vec<i64> = asks
            .filter(|ask| ask.max_batch > 1)
            .map(|ask| ask.campaign_id)
            .collect();
        if wanted.is_empty() {
            return;
        }
        let mut senders = HashMap::new();
        for route in &self.routes {
            let lines = route.lines.iter();
            for line in lines.filter(|line| wanted.contains(&line.campaign.id)) {
                let sender = (Arc::clone(&route.provider), line.campaign.sender.clone());
                senders.insert(line.campaign.id, sender);
            }
        }
        round.fill = Arc::new(move |terms: &BatchLimits<'_>| -> Batcher {
            let Some((provider, from)) = senders.get(&terms.campaign_id) else {
                return alone(terms);
            };
            let mut filling = Filling::new(Arc::clone(provider), from.clone(), terms);
            Box::new(move |sms, phone, segments| filling.place(sms, phone, segments))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filling(max_batch: u32, calls: u32, cost: i32, by_segments: bool) -> Filling {
        let stanza = "kind = 'sandbox'\nurl = 'http://world.invalid'\nper_call = 5";
        let stanza: toml::Table = stanza.parse().expect("toml");
        let provider = Provider::from_stanza("world", &stanza, &|_| None).expect("a provider");
        let terms = BatchLimits {
            provider: "world",
            campaign_id: 1,
            max_requests: calls,
            max_batch,
            max_cost: cost,
            by_segments,
        };
        Filling::new(Arc::new(provider), None, &terms)
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

    fn place(filling: &mut Filling, sms: &Sms, segments: i32) -> Option<usize> {
        let phone = Phone::parse(&sms.phone, None).expect("a phone");
        filling.place(sms, &phone, segments)
    }

    fn placed(filling: &mut Filling, numbers: impl IntoIterator<Item = i64>) -> Vec<Option<usize>> {
        let numbers = numbers.into_iter();
        numbers
            .map(|number| place(filling, &sms(number), 1))
            .collect()
    }

    #[test]
    fn calls_are_filled_one_after_the_other_and_what_finds_no_room_waits() {
        let calls = placed(&mut filling(3, 2, 100, false), 1..=7);
        assert_eq!(
            calls,
            [0, 0, 0, 1, 1, 1]
                .map(Some)
                .into_iter()
                .chain([None])
                .collect::<Vec<_>>()
        );
        // The provider's own most.
        let calls = placed(&mut filling(100, 2, 100, false), 1..=6);
        assert_eq!(calls.last(), Some(&Some(1)));
    }

    #[test]
    fn a_phone_stands_once_in_a_call_and_its_second_message_in_the_next() {
        let mut filling = filling(5, 9, 100, false);
        let calls: Vec<_> = (1..=10_i64)
            .map(|number| {
                let mut second = sms((number + 1) / 2);
                second.reference = format!("r{number}");
                place(&mut filling, &second, 1)
            })
            .collect();
        let expected: Vec<_> = (1..=10).map(|number| Some((number + 1) % 2)).collect();
        assert_eq!(calls, expected);
    }

    #[test]
    fn who_was_tried_before_goes_alone_and_so_does_who_is_in_doubt() {
        let mut filling = filling(5, 9, 100, false);
        let mut tried = sms(2);
        tried.attempts = 1;
        let mut in_doubt = sms(3);
        in_doubt.in_doubt = true;
        let calls = [&sms(1), &tried, &in_doubt, &sms(4)].map(|one| place(&mut filling, one, 1));
        assert_eq!(calls, [0, 1, 2, 0].map(Some));
    }

    #[test]
    fn a_call_costs_no_more_than_it_may_but_for_one_that_is_dear_alone() {
        let mut filling = filling(5, 9, 3, true);
        let calls = [(1, 2), (2, 2), (3, 1), (4, 7), (5, 1)]
            .map(|(number, segments)| place(&mut filling, &sms(number), segments));
        assert_eq!(calls, [0, 1, 0, 2, 1].map(Some));
    }
}
