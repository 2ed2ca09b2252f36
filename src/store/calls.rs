//! A call is one request to a provider, with one message in it or several of one campaign. Which messages go
//! together is the sender's to say; that a call has one moment, which costs as much as all of them, is said
//! here.

use super::pace::allotment::{Allotment, Own};
use super::queue::{Ask, Claimed, Load, Round, RouteClaim};
use crate::phone::Phone;
use crate::sms::Sms;

/// On what terms the messages of one ask are put together.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    pub provider: &'a str,
    pub campaign_id: i64,
    /// At most so many calls,
    pub calls: u32,
    /// of so many messages,
    pub per_call: u32,
    /// and of such a cost.
    pub cost: i32,
    /// The cost counts segments, not messages.
    pub by_segments: bool,
}

/// Says which call a message of so many segments goes with, each being counted from 0; `None` where it must
/// wait for another round.
pub type Fill = Box<dyn FnMut(&Sms, &Phone, i32) -> Option<usize> + Send>;

/// Every message goes alone.
pub fn alone(terms: &Terms<'_>) -> Fill {
    let most = terms.calls as usize;
    let mut count = 0;
    Box::new(move |_, _, _| {
        let next = (count < most).then_some(count);
        count += 1;
        next
    })
}

impl Load {
    /// One message.
    pub fn of(segments: i32) -> Self {
        Self {
            messages: 1,
            segments,
        }
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            segments: self.segments.saturating_add(other.segments),
        }
    }
}

/// A message that can be sent. `K` is what its database knows of it beside.
pub(super) struct Ready<K> {
    pub(super) key: K,
    pub(super) sms: Sms,
    pub(super) phone: Phone,
    pub(super) segments: i32,
}

/// The calls that one ask makes.
pub(super) struct Filling<K> {
    fill: Fill,
    /// Every message has a call of its own.
    is_alone: bool,
    calls: Vec<(Load, Vec<Ready<K>>)>,
}

impl<K> Filling<K> {
    /// `left` are the calls that may still be made in this claim.
    pub(super) fn begin(
        round: &Round,
        route: &RouteClaim,
        ask: Ask,
        left: u32,
        allotment: &Allotment<'_>,
        own: &Own,
    ) -> Self {
        let per_call = ask.per_call.max(1);
        let terms = Terms {
            provider: &route.provider,
            campaign_id: ask.campaign_id,
            calls: left.min(ask.at_most.div_ceil(per_call)),
            per_call,
            cost: allotment.call_cost(own),
            by_segments: route.by_segments,
        };
        let fill = if per_call == 1 {
            alone(&terms)
        } else {
            (round.fill)(&terms)
        };
        Self {
            fill,
            is_alone: per_call == 1,
            calls: Vec::new(),
        }
    }

    /// Puts the message into a call, or gives it back where it must wait.
    pub(super) fn place(&mut self, ready: Ready<K>) -> Option<Ready<K>> {
        let Some(number) = (self.fill)(&ready.sms, &ready.phone, ready.segments) else {
            return Some(ready);
        };
        let load = Load::of(ready.segments);
        match self.calls.get_mut(number) {
            Some((sum, call)) => {
                *sum = sum.and(load);
                call.push(ready);
            }
            None => self.calls.push((load, vec![ready])),
        }
        None
    }

    /// Gives each call its moment, and tells `note` of each of its messages; what has none is given back.
    /// `begun` are the calls of the asks before.
    pub(super) fn moments(
        self,
        begun: u32,
        allotment: &mut Allotment<'_>,
        own: &mut Own,
        mut note: impl FnMut(&K, &Sms, &Phone),
    ) -> (Vec<Claimed>, Vec<Ready<K>>) {
        let (mut rows, mut left) = (Vec::new(), Vec::new());
        let mut call = begun;
        for (load, messages) in self.calls {
            // There are no more than have permits, but nobody could tell what they would cost together.
            let until_us = if self.is_alone || call == begun {
                i64::MAX
            } else {
                allotment.until_us()
            };
            let Some(moment) = allotment.moment(own, load, until_us) else {
                left.extend(messages);
                continue;
            };
            for Ready {
                key,
                mut sms,
                phone,
                segments,
            } in messages
            {
                note(&key, &sms, &phone);
                phone.as_str().clone_into(&mut sms.phone);
                sms.segments = Some(segments);
                rows.push(Claimed {
                    sms,
                    phone,
                    call,
                    moment,
                });
            }
            call += 1;
        }
        (rows, left)
    }
}

/// How many calls these rows are.
pub(super) fn count(rows: &[Claimed]) -> u32 {
    rows.last().map_or(0, |last| last.call + 1)
}
