//! Sender pools: which of a provider's senders sends to a phone. The same phone has the same sender in all campaigns,
//! and a sender that is added or removed moves only its own share of the phones.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::rate::Rates;

/// One sender of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSender {
    /// As the provider gets it: a number or a name.
    pub from: Arc<str>,
    /// Its own limit, in addition to that of the provider's account. Empty: none.
    pub rate: Rates,
    /// Its share of the phones, relative to those of the other senders; at least 1.
    pub weight: u32,
    /// The first digits of the numbers that it sends to; empty: all numbers that no other sender has a prefix of.
    pub prefixes: Vec<String>,
}

/// The senders of one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderPool {
    provider: String,
    /// The provider has a list of senders, each with limits and pauses of its own.
    is_listed: bool,
    senders: Vec<Arc<PoolSender>>,
    /// What a phone's hash is combined with for each sender.
    seeds: Vec<u64>,
}

/// Why a list of senders is not a pool: the index of the sender, and the problem.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("senders[{index}]: {problem}")]
pub struct InvalidSender {
    index: usize,
    problem: String,
}

impl SenderPool {
    /// An error for a sender without a name, with an invalid prefix or without a share, and for one that is listed twice.
    pub fn new(provider: &str, senders: Vec<PoolSender>) -> Result<Self, InvalidSender> {
        let mut names = BTreeSet::new();
        for (index, sender) in senders.iter().enumerate() {
            let invalid = |problem: String| InvalidSender { index, problem };
            let from = &*sender.from;
            if from.trim().is_empty() || from.len() > MAX_SENDER {
                let problem = format!("invalid `from`: must have 1 to {MAX_SENDER} bytes");
                return Err(invalid(problem));
            }
            if !names.insert(from) {
                return Err(invalid(format!("`{from}` is listed twice")));
            }
            if sender.weight == 0 {
                return Err(invalid("invalid `weight`: must be at least 1".to_owned()));
            }
            if let Some(prefix) = sender.prefixes.iter().find(|prefix| !is_prefix(prefix)) {
                return Err(invalid(format!(
                    "invalid `prefix` \"{prefix}\": write the first digits of numbers, without `+`, like \"44\""
                )));
            }
        }
        let senders = senders.into_iter().map(Arc::new).collect();
        Ok(Self::of(provider, true, senders))
    }

    fn of(provider: &str, is_listed: bool, senders: Vec<Arc<PoolSender>>) -> Self {
        let seeds = senders.iter().map(|sender| hash(&[provider, &sender.from]));
        Self { provider: provider.to_owned(), is_listed, seeds: seeds.collect(), senders }
    }

    /// The pool of a provider without a list of senders: one that sends to all numbers. `from` is empty where that is
    /// the provider's own sender.
    pub fn unlisted(provider: &str, from: &str) -> Self {
        let sender = PoolSender {
            from: from.into(),
            rate: Rates::default(),
            weight: 1,
            prefixes: Vec::new(),
        };
        Self::of(provider, false, vec![Arc::new(sender)])
    }

    /// Only this sender of the pool; none if it is not listed.
    #[must_use]
    pub fn only(&self, from: &str) -> Self {
        let sender = self.sender(from).cloned();
        Self::of(&self.provider, true, sender.into_iter().collect())
    }

    /// Whether its senders have limits and pauses of their own.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    pub fn provider(&self) -> &str {
        &self.provider
    }

    pub fn senders(&self) -> &[Arc<PoolSender>] {
        &self.senders
    }

    pub fn sender(&self, from: &str) -> Option<&Arc<PoolSender>> {
        self.senders.iter().find(|sender| *sender.from == *from)
    }

    /// Whether any of the senders sends to this phone in E.164 with `+`.
    pub fn reaches(&self, phone: &str) -> bool {
        self.choose(phone, |_| true).is_some()
    }

    /// The index of the sender for a phone in E.164 with `+`, among those that `is_usable`: of those with the longest
    /// prefix of the phone the one that the phone's hash selects. `None`: none sends to this phone.
    pub fn choose(&self, phone: &str, is_usable: impl Fn(usize) -> bool) -> Option<usize> {
        let usable = (0..self.senders.len()).filter(|index| is_usable(*index));
        let shares = usable.map(|index| Share {
            index,
            prefixes: &self.senders[index].prefixes,
            weight: self.senders[index].weight,
            seed: self.seeds[index],
        });
        select(phone, shares)
    }
}

/// One of several that share phones.
pub struct Share<'a> {
    pub index: usize,
    /// The first digits of its phones; empty: all that no other has a prefix of.
    pub prefixes: &'a [String],
    /// Its share, relative to those of the others with the same prefix.
    pub weight: u32,
    /// What the hash of a phone is combined with.
    pub seed: u64,
}

/// Selects by rendezvous hashing one of those with the longest prefix of a phone in E.164 with `+`; `None`: there is
/// none for it. <https://en.wikipedia.org/wiki/Rendezvous_hashing>
pub fn select<'a>(phone: &str, shares: impl Iterator<Item = Share<'a>>) -> Option<usize> {
    let digits = phone.strip_prefix('+').unwrap_or(phone);
    let phone_hash = hash(&[digits]);
    let ranked = shares.filter_map(|share| {
        let longest = share
            .prefixes
            .iter()
            .filter(|prefix| digits.starts_with(*prefix))
            .map(String::len)
            .max();
        let rank = longest.or(share.prefixes.is_empty().then_some(0))?;
        let score = -unit(mixed(phone_hash ^ share.seed)).ln() / f64::from(share.weight);
        Some((Reverse(rank), score, share.index))
    });
    let best = ranked.min_by(|(rank, score, _), (other_rank, other_score, _)| {
        rank.cmp(other_rank).then_with(|| score.total_cmp(other_score))
    });
    best.map(|(.., index)| index)
}

/// Whether this is a list of first digits of numbers.
pub fn is_prefix(prefix: &str) -> bool {
    !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit())
}

/// The longest name of a sender in bytes: it is part of the scope of its limit.
const MAX_SENDER: usize = 100;

/// The same on all machines and in all versions: phones must keep their senders.
pub fn hash(parts: &[&str]) -> u64 {
    let digest = Sha256::digest(parts.join("\n"));
    let first = digest.first_chunk::<8>().expect("a digest has 32 bytes");
    u64::from_be_bytes(*first)
}

/// The finalizer of `SplitMix64`: each bit of the result depends on all bits of `value`.
/// <https://prng.di.unimi.it/splitmix64.c>
const fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A number between 0 and 1, without both.
fn unit(hash: u64) -> f64 {
    let upper = u32::try_from(hash >> 32).expect("32 bits are left");
    (f64::from(upper) + 0.5) / (f64::from(u32::MAX) + 1.0)
}

/// The senders that an operator switched off, with their providers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendersOff(pub BTreeSet<(String, String)>);

impl SendersOff {
    pub fn contains(&self, provider: &str, sender: &str) -> bool {
        let mut all = self.0.iter();
        all.any(|(of, name)| of == provider && name == sender)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn sender(from: &str) -> PoolSender {
        PoolSender { from: from.into(), rate: Rates::default(), weight: 1, prefixes: Vec::new() }
    }

    fn bound(from: &str, prefixes: &[&str]) -> PoolSender {
        PoolSender {
            prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
            ..sender(from)
        }
    }

    fn pool(senders: Vec<PoolSender>) -> SenderPool {
        SenderPool::new("cellar", senders).expect("a pool")
    }

    fn phones(count: u32) -> impl Iterator<Item = String> {
        (0..count).map(|number| format!("+4474{number:08}"))
    }

    fn chosen<'a>(pool: &'a SenderPool, phone: &str) -> Option<&'a str> {
        let index = pool.choose(phone, |_| true)?;
        Some(&pool.senders()[index].from)
    }

    #[test]
    fn phones_are_shared_by_weight() {
        let heavy = PoolSender { weight: 3, ..sender("c") };
        let pool = pool(vec![sender("a"), sender("b"), heavy]);
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for phone in phones(50_000) {
            *counts.entry(chosen(&pool, &phone).expect("one")).or_default() += 1;
        }
        for (from, expected) in [("a", 10_000), ("b", 10_000), ("c", 30_000)] {
            let off_by = counts[from].abs_diff(expected);
            assert!(off_by < 300, "{counts:?}");
        }
    }

    #[test]
    fn phone_keeps_its_sender_when_another_is_added_or_switched_off() {
        let names: Vec<String> = (0..10).map(|number| format!("+1202555010{number}")).collect();
        let ten = pool(names.iter().map(|name| sender(name)).collect());
        let nine = pool(names[..9].iter().map(|name| sender(name)).collect());
        let mut moved = 0;
        for phone in phones(10_000) {
            let (before, after) = (chosen(&nine, &phone), chosen(&ten, &phone));
            if before != after {
                assert_eq!(after, Some("+12025550109"));
                moved += 1;
            }
            let without = ten.choose(&phone, |index| index != 9);
            assert_eq!(without.map(|index| &*ten.senders()[index].from), before);
        }
        assert!((900..1_100).contains(&moved), "{moved}");
    }

    #[test]
    fn senders_of_known_phones_never_change() {
        let pool = pool(vec![sender("a"), sender("b"), sender("c"), sender("d")]);
        let all: Vec<&str> = phones(12).map(|phone| chosen(&pool, &phone).expect("one")).collect();
        assert_eq!(all.concat(), "ccaccdccdbca");
    }

    #[test]
    fn longest_prefix_selects_the_senders() {
        let pool = pool(vec![sender("all"), bound("GB", &["44", "353"]), bound("JE", &["447797"])]);
        for (phone, expected) in [
            ("+447400123456", "GB"),
            ("+353851234567", "GB"),
            ("+447797123456", "JE"),
            ("+12025550123", "all"),
        ] {
            assert_eq!(chosen(&pool, phone), Some(expected), "{phone}");
        }
        let without = |off: usize| pool.choose("+447797123456", |index| index != off);
        assert_eq!((without(2), without(1)), (Some(1), Some(2)));
    }

    #[test]
    fn invalid_pools_are_refused() {
        let weightless = PoolSender { weight: 0, ..sender("a") };
        for (senders, expected) in [
            (vec![sender("a"), sender("a")], "senders[1]: `a` is listed twice"),
            (vec![weightless], "senders[0]: invalid `weight`: must be at least 1"),
            (vec![sender(" ")], "senders[0]: invalid `from`: must have 1 to 100 bytes"),
            (
                vec![bound("a", &["44", "+1"])],
                "senders[0]: invalid `prefix` \"+1\": write the first digits of numbers, without `+`, like \"44\"",
            ),
        ] {
            let error = SenderPool::new("cellar", senders).expect_err("refused");
            assert_eq!(error.to_string(), expected);
        }
    }
}
