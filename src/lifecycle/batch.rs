//! Puts the messages of one lane's claim together into requests. A request has one permit with the cost of all
//! its messages.

use std::collections::VecDeque;
use std::sync::Arc;

use smsq_limit::{ClaimLimit, PermitAllocator, PermitCost};
use smsq_message::instant::DbMicros;
use smsq_message::phone::Phone;
use smsq_message::sms::Sms;

use super::{ClaimedSms, LaneClaim, ProviderClaim};

/// How many requests with room left are kept open. More than one, because neighbours in a list often cannot share a
/// request, such as two messages to one phone.
const OPEN: usize = 4;

/// The key of a message: messages with equal keys and different phones can share a request. `None`: the message has a
/// request of its own. A pure function of the message and its provider.
pub type BatchKeys = Arc<dyn Fn(&Sms, &Phone) -> Option<Vec<String>> + Send + Sync>;

/// A message that can be sent; `K` is its position in the database.
pub struct BatchItem<K> {
    pub key: K,
    pub sms: Sms,
    pub phone: Phone,
    pub segments: i32,
}

struct Request<K> {
    key: Option<Vec<String>>,
    cost: PermitCost,
    items: Vec<BatchItem<K>>,
}

/// The requests of one lane's claim.
pub struct Batches<K> {
    max_requests: usize,
    max_batch: usize,
    /// The most that one request may cost, unless it is a single message.
    max_cost: i32,
    /// The cost counts segments, not messages.
    by_segments: bool,
    requests: Vec<Request<K>>,
    /// The numbers of the requests with room left.
    open: VecDeque<usize>,
}

impl<K> Batches<K> {
    /// `left`: how many more requests this claim may have.
    pub fn new(provider: &ProviderClaim, lane: &LaneClaim, left: u32, max_cost: i32) -> Self {
        let max_batch = lane.max_batch.max(1);
        Self {
            max_requests: left.min(lane.max_messages.div_ceil(max_batch)) as usize,
            max_batch: max_batch as usize,
            max_cost,
            by_segments: provider.by_segments,
            requests: Vec::new(),
            open: VecDeque::new(),
        }
    }

    /// Puts the message into a request; returns it if no request has room. A message that was attempted before or is in
    /// doubt has a request of its own, so that it cannot make another batch fail.
    pub fn place(&mut self, item: BatchItem<K>, keys: &BatchKeys) -> Option<BatchItem<K>> {
        let goes_alone = self.max_batch == 1 || item.sms.attempts > 0 || item.sms.in_doubt;
        let key = if goes_alone { None } else { keys(&item.sms, &item.phone) };
        let cost = PermitCost::of_message(item.segments);
        if let Some(place) = self.open_for(key.as_ref(), &item.phone, cost) {
            let request = &mut self.requests[self.open[place]];
            request.cost = request.cost.plus(cost);
            request.items.push(item);
            if request.items.len() == self.max_batch {
                self.open.remove(place);
            }
            return None;
        }
        let number = self.requests.len();
        if number == self.max_requests {
            return Some(item);
        }
        if key.is_some() {
            if self.open.len() == OPEN {
                self.open.pop_front();
            }
            self.open.push_back(number);
        }
        let items = vec![item];
        self.requests.push(Request { key, cost, items });
        None
    }

    /// The index in `open` of a request that has room for this message.
    fn open_for(
        &self,
        key: Option<&Vec<String>>,
        phone: &Phone,
        cost: PermitCost,
    ) -> Option<usize> {
        let key = key?;
        self.open.iter().position(|number| {
            let request = &self.requests[*number];
            let sum = request.cost.plus(cost);
            let sum = if self.by_segments { sum.segments } else { sum.messages };
            sum <= self.max_cost
                && request.key.as_ref() == Some(key)
                && request.items.iter().all(|item| item.phone != *phone)
        })
    }

    /// Gives each request a permit and calls `note` for each of its messages; returns the messages with a permit and
    /// those without. `begun`: the number of requests of earlier lanes in this claim.
    pub fn permit(
        self,
        begun: u32,
        allocator: &mut PermitAllocator,
        own: &mut [ClaimLimit],
        mut note: impl FnMut(&K, &Sms, &Phone),
    ) -> (Vec<ClaimedSms>, Vec<BatchItem<K>>) {
        let (mut claimed, mut left) = (Vec::new(), Vec::new());
        let mut number = begun;
        for request in self.requests {
            // The permits were counted before, but with an estimate of the cost of batches.
            let until = if self.max_batch == 1 || number == begun {
                DbMicros::MAX
            } else {
                allocator.terms.until
            };
            let Some(permit) = allocator.allocate(own, request.cost, until) else {
                left.extend(request.items);
                continue;
            };
            for item in request.items {
                note(&item.key, &item.sms, &item.phone);
                let mut sms = item.sms;
                item.phone.as_str().clone_into(&mut sms.phone);
                sms.segments = Some(item.segments);
                claimed.push(ClaimedSms { sms, phone: item.phone, request: number, permit });
            }
            number += 1;
        }
        (claimed, left)
    }
}

/// The number of requests of these messages.
pub fn count(claimed: &[ClaimedSms]) -> u32 {
    claimed.last().map_or(0, |last| last.request + 1)
}

#[cfg(test)]
mod tests {
    use smsq_limit::{Account, ClaimTerms, Tolerance};
    use smsq_message::rate::Rates;

    use super::*;
    use crate::testing;

    /// Requests of messages whose texts are their keys.
    struct Placed(Batches<()>);

    impl Placed {
        fn new(max_batch: u32, max_requests: u32, max_cost: i32, by_segments: bool) -> Self {
            let provider = ProviderClaim {
                provider: "world".to_owned(),
                account: Account::new("world"),
                is_default: true,
                routes: Arc::default(),
                limits: Vec::new(),
                by_segments,
                from: DbMicros::default(),
                until: DbMicros::default(),
                released: Vec::new(),
                held: Vec::new(),
                max_messages: 100,
                max_requests,
                lanes: Vec::new(),
                pool: None,
                prices: Arc::default(),
            };
            let lane = LaneClaim { max_batch, ..LaneClaim::undivided(1, 100) };
            Self(Batches::new(&provider, &lane, max_requests, max_cost))
        }

        /// The number of the message's request.
        fn place(&mut self, sms: Sms, segments: i32) -> Option<usize> {
            let (reference, key) = (sms.reference.clone(), sms.content.clone());
            let item = BatchItem {
                key: (),
                phone: Phone::parse(&sms.phone, None).expect("a phone"),
                sms,
                segments,
            };
            let keys: BatchKeys = Arc::new(move |_, _| Some(vec![key.clone()]));
            if self.0.place(item, &keys).is_some() {
                return None;
            }
            let mut requests = self.0.requests.iter();
            let has_it = |item: &BatchItem<()>| item.sms.reference == reference;
            requests.position(|request| request.items.iter().any(has_it))
        }
    }

    fn sms(number: i64) -> Sms {
        Sms {
            id: number,
            phone: format!("+8613800000{number:03}"),
            reference: format!("r{number}"),
            ..testing::sms()
        }
    }

    #[test]
    fn requests_are_filled_in_order_and_surplus_waits() {
        let mut placed = Placed::new(3, 2, 100, false);
        let numbers: Vec<_> = (1..=7).map(|number| placed.place(sms(number), 1)).collect();
        let expected = [Some(0), Some(0), Some(0), Some(1), Some(1), Some(1), None];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn second_message_to_a_phone_goes_in_the_next_request() {
        let mut placed = Placed::new(5, 9, 100, false);
        for number in 1..=10 {
            let second = Sms { reference: format!("r{number}"), ..sms((number + 1) / 2) };
            let expected = usize::from(number % 2 == 0);
            assert_eq!(placed.place(second, 1), Some(expected), "{number}");
        }
    }

    #[test]
    fn messages_with_different_keys_have_different_requests() {
        let mut placed = Placed::new(5, 9, 100, false);
        let numbers: Vec<_> = (1..=12)
            .map(|number| {
                let content = (number % 6).to_string();
                placed.place(Sms { content, ..sms(number) }, 1)
            })
            .collect();
        // Only the last four requests are open: of six keys in turns they are not found again.
        let expected: Vec<_> = (0..9).map(Some).chain([None, None, Some(5)]).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn attempted_or_doubtful_message_goes_alone() {
        let mut placed = Placed::new(5, 9, 100, false);
        let tried = Sms { attempts: 1, ..sms(2) };
        let in_doubt = Sms { in_doubt: true, ..sms(3) };
        let numbers = [sms(1), tried, in_doubt, sms(4)].map(|one| placed.place(one, 1));
        assert_eq!(numbers, [0, 1, 2, 0].map(Some));
    }

    #[test]
    fn request_keeps_to_its_cost_unless_one_message_exceeds_it() {
        let mut placed = Placed::new(5, 9, 3, true);
        let numbers = [(1, 2), (2, 2), (3, 1), (4, 7), (5, 1)]
            .map(|(number, segments)| placed.place(sms(number), segments));
        assert_eq!(numbers, [0, 1, 0, 2, 1].map(Some));
    }

    /// Gives permits under a limit of 10 per second to the requests of five messages, before `until` in microseconds.
    /// Returns the messages with a permit and their requests, and the number of messages without one.
    fn permitted(max_batch: u32, begun: u32, until: i64) -> (Vec<(i64, u32)>, usize) {
        let mut placed = Placed::new(max_batch, 9, 100, false);
        for number in 1..=5 {
            placed.place(sms(number), 2);
        }
        let mut allocator = PermitAllocator {
            terms: ClaimTerms {
                from: DbMicros::new(0),
                until: DbMicros::new(until),
                by_segments: false,
            },
            account: ClaimLimit::default(),
        };
        let limits = "10/s".parse::<Rates>().expect("rates").0;
        let account = &mut allocator.account.limit;
        account.begin(&limits, 1, DbMicros::new(0), Tolerance::MIN);
        let mut noted = Vec::new();
        let (claimed, left) = placed.0.permit(begun, &mut allocator, &mut [], |(), sms, _| {
            noted.push(sms.id);
        });
        let requests: Vec<(i64, u32)> =
            claimed.iter().map(|message| (message.sms.id, message.request)).collect();
        let ids: Vec<i64> = requests.iter().map(|(id, _)| *id).collect();
        assert_eq!(noted, ids);
        assert!(claimed.iter().all(|message| message.sms.segments == Some(2)));
        assert_eq!(count(&claimed), requests.last().map_or(0, |(_, last)| last + 1));
        (requests, left.len())
    }

    #[test]
    fn batches_get_permits_until_the_end_of_the_claim() {
        let all = vec![(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)];
        assert_eq!(permitted(2, 0, 10_000_000), (all.clone(), 0));
        assert_eq!(permitted(2, 0, 400_000), (all[..4].to_vec(), 1));
        // A claim has at least one request, and the first one of a later campaign is not the first of the claim.
        assert_eq!(permitted(2, 0, -1), (all[..2].to_vec(), 3));
        let later: Vec<(i64, u32)> = all.iter().map(|(id, request)| (*id, request + 3)).collect();
        assert_eq!(permitted(2, 3, 10_000_000), (later, 0));
    }

    #[test]
    fn single_messages_were_counted_before_and_all_get_a_permit() {
        let all = (1..=5).zip(0..).collect();
        assert_eq!(permitted(1, 0, -1), (all, 0));
    }
}
