//! Routes: which provider sends to a phone, by which of its senders, and which other provider does it while that one is
//! unavailable. A provider with a pool of senders is a route, too: to itself.

pub mod sender_pool;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::prices::Prices;
use crate::rate::Rates;
use crate::sms::Timestamp;
use sender_pool::{PoolSender, SenderPool, SendersOff, Share, hash, is_prefix, select};

/// A section `[routes.NAME]`, whose providers are not known yet.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    #[serde(default)]
    first: Vec<EntryConfig>,
    /// The provider of all other numbers.
    #[serde(rename = "else")]
    otherwise: Option<String>,
    /// The providers of what was certainly not accepted, in this order.
    #[serde(default)]
    fallback: Vec<String>,
    /// For how long a provider is unavailable before others send its messages.
    #[serde(
        default = "usual_wait",
        with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required"
    )]
    fallback_after: Duration,
    #[serde(default)]
    choose: Choose,
    /// It cannot be set: it is read for the reason why.
    on: Option<toml::Value>,
}

/// How the provider of a phone is chosen among those of its prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Choose {
    /// By their shares.
    #[default]
    Shares,
    /// The cheapest of those that deliver as well as the best one.
    Cheapest,
}

/// One of `first`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryConfig {
    prefix: Vec<String>,
    provider: String,
    #[serde(default = "whole")]
    share: u32,
}

const fn whole() -> u32 {
    1
}

const fn usual_wait() -> Duration {
    Duration::from_secs(120)
}

impl RouteConfig {
    /// Parses the section; an error says what is wrong with it.
    pub fn from_toml(section: &toml::Table) -> Result<Self, String> {
        let config: Self = section
            .clone()
            .try_into()
            .map_err(|error: toml::de::Error| error.message().to_owned())?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.on.is_some() {
            return Err("`on` cannot be set: only messages that were certainly not accepted go to another provider; \
                        an unknown one may have arrived, and would be sent twice"
                .to_owned());
        }
        let mut shares: BTreeMap<&str, u64> = BTreeMap::new();
        for entry in &self.first {
            if entry.prefix.is_empty() {
                let provider = &entry.provider;
                return Err(format!(
                    "`first` has no `prefix` for `{provider}`: write the provider of all other numbers as `else`"
                ));
            }
            for prefix in &entry.prefix {
                if !is_prefix(prefix) {
                    return Err(format!(
                        "invalid `prefix` \"{prefix}\": write the first digits of numbers, without `+`, like \"44\""
                    ));
                }
                *shares.entry(prefix).or_default() += u64::from(entry.share);
            }
        }
        if let Some((prefix, _)) = shares.iter().find(|(_, share)| **share == 0) {
            return Err(format!("the shares of prefix {prefix} add up to 0"));
        }
        let homes: BTreeSet<&String> = self.homes().collect();
        if homes.is_empty() {
            return Err("it has no provider: write `else = \"PROVIDER\"`".to_owned());
        }
        let fallback: BTreeSet<&String> = self.fallback.iter().collect();
        if fallback.len() < self.fallback.len() {
            return Err("`fallback` names a provider twice".to_owned());
        }
        if homes.len() == 1 && homes == fallback {
            let provider = &self.fallback[0];
            return Err(format!("`{provider}` cannot be the fallback of itself"));
        }
        Ok(())
    }

    /// The providers that have numbers of their own.
    fn homes(&self) -> impl Iterator<Item = &String> {
        let first = self.first.iter().map(|entry| &entry.provider);
        first.chain(&self.otherwise)
    }

    /// Whether the price decides, so that each of its providers needs one.
    pub fn is_cheapest(&self) -> bool {
        self.choose == Choose::Cheapest
    }

    /// The names of all its providers.
    pub fn providers(&self) -> BTreeSet<&str> {
        let all = self.homes().chain(&self.fallback);
        all.map(String::as_str).collect()
    }
}

/// A provider of a route.
#[derive(Clone, Debug)]
pub struct RouteMember {
    pub pool: Arc<SenderPool>,
    /// The limits of its account.
    pub rates: Rates,
    /// The sender of a provider without a list of senders.
    pub own_sender: Option<String>,
    pub prices: Option<Arc<Prices>>,
    /// The columns without which it cannot send a message; `content` is the text.
    pub columns: BTreeSet<String>,
    /// What became of its messages.
    pub delivered: DeliveredShares,
}

/// How many of a provider's messages were delivered, by the longest prefix of its prices that their phones have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveredShares(BTreeMap<String, DeliveredCount>);

/// How many messages have a receipt that says what became of them, and how many of them were delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveredCount {
    pub delivered: u64,
    pub reported: u64,
}

/// With fewer receipts than this it is not known how well a provider delivers.
const FEWEST_RECEIPTS: u64 = 200;
/// A provider delivers as well as the best one if its share is at most this much lower.
const AS_GOOD: f64 = 0.03;

impl DeliveredShares {
    /// Adds what became of messages to phones that begin like this one.
    pub fn add(&mut self, prices: &Prices, phone: &str, count: DeliveredCount) {
        let known = self.0.entry(prices.prefix_of(phone).to_owned()).or_default();
        known.delivered += count.delivered;
        known.reported += count.reported;
    }

    /// `None`: it is not known.
    fn of(&self, prices: &Prices, phone: &str) -> Option<f64> {
        let count = self.0.get(prices.prefix_of(phone))?;
        let [delivered, reported] =
            [count.delivered, count.reported].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let is_known = count.reported >= FEWEST_RECEIPTS;
        is_known.then(|| f64::from(delivered) / f64::from(reported))
    }
}

impl RouteMember {
    fn has_own(&self, from: &str) -> bool {
        self.own_sender.as_deref() == Some(from)
    }

    fn delivered_share(&self, phone: &str) -> Option<f64> {
        self.delivered.of(self.prices.as_ref()?, phone)
    }
}

#[derive(Clone, Debug)]
struct RouteEntry {
    /// Empty: all numbers that have no other entry.
    prefixes: Vec<String>,
    member: usize,
    share: u32,
    seed: u64,
}

/// Decides who sends to a phone. The same phone goes to the same provider in all campaigns, and a provider that is added
/// to a prefix takes over only its own share of the phones.
#[derive(Clone, Debug)]
pub struct Route {
    name: String,
    is_pool: bool,
    members: Vec<RouteMember>,
    entries: Vec<RouteEntry>,
    /// In the order in which they are asked.
    fallback: Vec<usize>,
    fallback_after: Duration,
    choose: Choose,
    /// The members that cannot send a list or a message, with a column that it lacks.
    lacking: BTreeMap<usize, String>,
}

impl Route {
    /// The route of a section. `member` gets the name of each of its providers once.
    pub fn new<E>(
        name: &str,
        config: &RouteConfig,
        member: impl Fn(&str) -> Result<RouteMember, E>,
    ) -> Result<Self, E> {
        let names: Vec<&str> = config.providers().into_iter().collect();
        let members = names.iter().map(|name| member(name)).collect::<Result<_, E>>()?;
        let index = |name: &str| {
            let found = names.iter().position(|known| *known == name);
            found.expect("all names are listed")
        };
        let entry = |prefixes: &[String], provider: &str, share| RouteEntry {
            prefixes: prefixes.to_vec(),
            member: index(provider),
            share,
            seed: hash(&["route", provider]),
        };
        let first = config.first.iter().filter(|first| first.share > 0);
        let entries = first.map(|first| entry(&first.prefix, &first.provider, first.share));
        let otherwise = config.otherwise.iter().map(|name| entry(&[], name, 1));
        Ok(Self {
            name: name.to_owned(),
            is_pool: false,
            members,
            entries: entries.chain(otherwise).collect(),
            fallback: config.fallback.iter().map(|name| index(name)).collect(),
            fallback_after: config.fallback_after,
            choose: config.choose,
            lacking: BTreeMap::new(),
        })
    }

    /// The route of a provider to its own senders.
    pub fn of_pool(pool: Arc<SenderPool>) -> Self {
        Self {
            name: pool.provider().to_owned(),
            is_pool: true,
            entries: vec![RouteEntry { prefixes: Vec::new(), member: 0, share: 1, seed: 0 }],
            members: vec![RouteMember {
                pool,
                rates: Rates::default(),
                own_sender: None,
                prices: None,
                columns: BTreeSet::new(),
                delivered: DeliveredShares::default(),
            }],
            fallback: Vec::new(),
            fallback_after: usual_wait(),
            choose: Choose::Shares,
            lacking: BTreeMap::new(),
        }
    }

    /// The route of messages that all have this sender. Providers that do not list it send none of them.
    #[must_use]
    pub fn with_sender(&self, from: &str) -> Self {
        let member = |member: &RouteMember| {
            let pool = if member.has_own(from) {
                SenderPool::unlisted(member.pool.provider(), from)
            } else {
                member.pool.only(from)
            };
            RouteMember { pool: Arc::new(pool), ..member.clone() }
        };
        Self { members: self.members.iter().map(member).collect(), ..self.clone() }
    }

    /// The route of a list or of a message: providers that need a column which it lacks send none of it.
    #[must_use]
    pub fn with_columns(&self, has: impl Fn(&str) -> bool) -> Self {
        let members = self.members.iter().enumerate();
        let lacking = members.filter_map(|(index, member)| {
            let column = member.columns.iter().find(|column| !has(column))?;
            Some((index, column.clone()))
        });
        Self { lacking: lacking.collect(), ..self.clone() }
    }

    /// Whether the columns of a message decide who sends it.
    pub fn needs_columns(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.columns.iter().any(|column| column != CONTENT))
    }

    /// The providers that need a column which the list or the message lacks, with the column.
    pub fn lacking(&self) -> impl Iterator<Item = (&str, &str)> {
        let lacking = self.lacking.iter();
        lacking.map(|(member, column)| (self.members[*member].pool.provider(), column.as_str()))
    }

    /// The first provider that does not list a sender.
    pub fn without_sender(&self, from: &str) -> Option<&str> {
        let lists = |member: &&RouteMember| {
            member.has_own(from) || (member.pool.is_listed() && member.pool.sender(from).is_some())
        };
        let lacking = self.members.iter().find(|member| !lists(member))?;
        Some(lacking.pool.provider())
    }

    /// The name of its section, or of its only provider.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn members(&self) -> &[RouteMember] {
        &self.members
    }

    /// Differs where the route of another worker has other providers, prefixes, shares or fallbacks.
    pub fn fingerprint(&self) -> String {
        let names: Vec<&str> = self.providers().collect();
        let entry = |entry: &RouteEntry| {
            let (prefixes, provider) = (entry.prefixes.join(","), names[entry.member]);
            format!("{prefixes}:{provider}:{}", entry.share)
        };
        let entries: Vec<String> = self.entries.iter().map(entry).collect();
        let fallback: Vec<&str> = self.fallback.iter().map(|index| names[*index]).collect();
        let rest = format!("{:?} {:?}", self.choose, self.fallback_after);
        let parts = [entries.join(";"), fallback.join(";"), rest];
        format!("{:016x}", hash(&parts.each_ref().map(String::as_str)))
    }

    /// Whether several providers are part of it.
    pub fn is_shared(&self) -> bool {
        self.members.len() > 1
    }

    /// Whether it is a provider with its own senders, not a section.
    pub fn is_pool(&self) -> bool {
        self.is_pool
    }

    /// The names of its providers.
    pub fn providers(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.pool.provider())
    }

    pub fn fallback_after(&self) -> Duration {
        self.fallback_after
    }

    /// Its providers with each of their senders.
    pub fn senders(&self) -> impl Iterator<Item = (&str, &Arc<PoolSender>)> {
        let members = self.members.iter();
        members.flat_map(|member| {
            let senders = member.pool.senders().iter();
            senders.map(|sender| (member.pool.provider(), sender))
        })
    }

    /// Whether the price decides which provider sends.
    pub fn is_cheapest(&self) -> bool {
        self.choose == Choose::Cheapest
    }

    /// The number of digits of the longest prefix of its prices.
    pub fn longest_prefix(&self) -> usize {
        let prices = self.members.iter().flat_map(|member| &member.prices);
        prices.map(|prices| prices.longest_prefix()).max().unwrap_or(0)
    }

    /// Sets what became of the messages of its providers: these messages of this provider, to phones that begin like
    /// this one.
    #[must_use]
    pub fn with_delivered(&self, counts: &[(String, String, DeliveredCount)]) -> Self {
        let mut route = self.clone();
        for member in &mut route.members {
            let Some(prices) = &member.prices else {
                continue;
            };
            let own = counts.iter().filter(|(provider, ..)| provider == member.pool.provider());
            for (_, phone, count) in own {
                member.delivered.add(prices, phone, *count);
            }
        }
        route
    }

    /// The cheapest provider of a phone's prefix, or of all if the prefix has none, among those that deliver as well as
    /// the best of them.
    fn cheapest(&self, phone: &str, is_able: impl Fn(usize) -> bool) -> Option<usize> {
        let digits = phone.strip_prefix('+').unwrap_or(phone);
        let length = |entry: &RouteEntry| {
            let fitting = entry.prefixes.iter().filter(|prefix| digits.starts_with(*prefix));
            fitting.map(String::len).max()
        };
        let able = || self.entries.iter().filter(|entry| is_able(entry.member));
        let longest = able().filter_map(length).max();
        let is_candidate = |entry: &&RouteEntry| match longest {
            Some(_) => length(entry) == longest,
            None => entry.prefixes.is_empty(),
        };
        let of_prefix = able().filter(is_candidate);
        let is_other = |member: &&usize| longest.is_none() && is_able(**member);
        let others = self.fallback.iter().filter(is_other);
        let members: BTreeSet<usize> =
            of_prefix.map(|entry| entry.member).chain(others.copied()).collect();
        let share = |member: &usize| self.members[*member].delivered_share(phone);
        let best = members.iter().filter_map(share).max_by(f64::total_cmp);
        let is_good = |member: &usize| {
            let pair = share(member).zip(best);
            pair.is_none_or(|(own, best)| own >= best - AS_GOOD)
        };
        let price = |member: &usize| {
            let prices = self.members[*member].prices.as_ref();
            prices.and_then(|prices| prices.of(phone)).unwrap_or(u64::MAX)
        };
        members.into_iter().filter(is_good).min_by_key(price)
    }

    /// The provider that a phone in E.164 with `+` has, by its index; `None`: it has none.
    pub fn home(&self, phone: &str) -> Option<usize> {
        self.home_among(phone, |member| self.is_able(member))
    }

    fn is_able(&self, member: usize) -> bool {
        !self.lacking.contains_key(&member)
    }

    fn home_among(&self, phone: &str, is_able: impl Fn(usize) -> bool) -> Option<usize> {
        if self.is_cheapest() {
            return self.cheapest(phone, is_able);
        }
        let able = self.entries.iter().filter(|entry| is_able(entry.member));
        let shares = able.map(|entry| Share {
            index: entry.member,
            prefixes: &entry.prefixes,
            weight: entry.share,
            seed: entry.seed,
        });
        select(phone, shares)
    }

    /// The provider and its sender for a phone in E.164 with `+`, by their indices, among those that are usable: its own
    /// provider, or else the first fallback. `None`: none of them sends to it.
    pub fn choose(
        &self,
        phone: &str,
        is_usable: impl Fn(usize, usize) -> bool,
    ) -> Option<(usize, usize)> {
        let home = self.home(phone);
        // A fallback sends only to the numbers of the route.
        home.or_else(|| self.home_among(phone, |_| true))?;
        let able = self.fallback.iter().copied();
        let others = able.filter(|other| Some(*other) != home && self.is_able(*other));
        home.into_iter().chain(others).find_map(|member| {
            let pool = &self.members[member].pool;
            let sender = pool.choose(phone, |sender| is_usable(member, sender))?;
            Some((member, sender))
        })
    }

    /// Whether any sender of any of its providers sends to this phone in E.164 with `+`.
    pub fn reaches(&self, phone: &str) -> bool {
        self.choose(phone, |_, _| true).is_some()
    }

    /// Why a message to this phone cannot be sent.
    pub fn no_sender(&self, phone: &str) -> String {
        let prefix: String = phone.chars().take(4).collect();
        let name = &self.name;
        if self.is_pool {
            format!("no sender of `{name}` sends to numbers that begin with {prefix}")
        } else {
            let except = self.lacking().map(|(provider, column)| {
                let needed = needed_column(column);
                format!(", except `{provider}`, which needs {needed}")
            });
            let except: String = except.collect();
            format!("route `{name}` has no provider for numbers that begin with {prefix}{except}")
        }
    }
}

/// The name of the text of a message among the columns of a provider.
pub const CONTENT: &str = "content";

/// Names a column that a provider needs.
pub fn needed_column(column: &str) -> String {
    match column {
        CONTENT => "a text".to_owned(),
        column => format!("column `{column}`"),
    }
}

/// A provider has been unavailable for longer than `fallback_after`, so others send its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderOutage {
    pub since: Timestamp,
    pub reason: String,
}

/// The lanes of a route in one campaign: decides in which of them a message waits.
#[derive(Clone, Debug)]
pub struct Division {
    route: Arc<Route>,
    /// By the indices of provider and sender: its lane, and whether it is switched on.
    lanes: Vec<Vec<(i32, bool)>>,
    /// By the index of the provider.
    outages: Vec<Option<ProviderOutage>>,
}

/// Who sends the messages of a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneOwner<'a> {
    pub provider: &'a str,
    pub sender: &'a Arc<PoolSender>,
    /// Its sender has limits and pauses of its own.
    pub is_listed: bool,
    pub is_on: bool,
    pub outage: Option<&'a ProviderOutage>,
}

impl LaneOwner<'_> {
    /// As messages get it; `None`: the provider's own.
    pub fn from(&self) -> Option<&str> {
        let from = &*self.sender.from;
        (!from.is_empty()).then_some(from)
    }
}

/// Lanes by the names of provider and sender.
pub type LaneNumbers = BTreeMap<(String, String), i32>;

impl Division {
    /// `None` if a sender has no lane yet.
    pub fn new(route: Arc<Route>, numbers: &LaneNumbers, off: &SendersOff) -> Option<Self> {
        let lane = |pool: &SenderPool, sender: &PoolSender| {
            let (provider, from) = (pool.provider(), &*sender.from);
            let number = numbers.get(&(provider.to_owned(), from.to_owned()))?;
            Some((*number, !off.contains(provider, from)))
        };
        let lanes = |member: &RouteMember| {
            let senders = member.pool.senders().iter();
            senders.map(|sender| lane(&member.pool, sender)).collect()
        };
        Some(Self {
            outages: vec![None; route.members.len()],
            lanes: route.members.iter().map(lanes).collect::<Option<_>>()?,
            route,
        })
    }

    /// Sets which providers are unavailable.
    #[must_use]
    pub fn with_outages(mut self, outage: impl Fn(&str) -> Option<ProviderOutage>) -> Self {
        for (known, member) in self.outages.iter_mut().zip(&self.route.members) {
            *known = outage(member.pool.provider());
        }
        self
    }

    pub fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// The lanes of a message with these columns: providers that need another one do not send it.
    pub fn with_columns(&self, has: impl Fn(&str) -> bool) -> Cow<'_, Self> {
        if !self.route.needs_columns() {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self { route: Arc::new(self.route.with_columns(has)), ..self.clone() })
    }

    /// Whether another provider than this one is available.
    pub fn has_other(&self, provider: &str) -> bool {
        let mut members = self.route.members.iter().zip(&self.outages);
        members.any(|(member, outage)| outage.is_none() && member.pool.provider() != provider)
    }

    /// Why this provider is unavailable.
    pub fn outage(&self, provider: &str) -> Option<&ProviderOutage> {
        let mut members = self.route.members.iter().zip(&self.outages);
        let (_, outage) = members.find(|(member, _)| member.pool.provider() == provider)?;
        outage.as_ref()
    }

    /// Who sends the messages of a lane; `None`: no provider of the route.
    pub fn owner(&self, number: i32) -> Option<LaneOwner<'_>> {
        let mut members = self.lanes.iter().enumerate();
        members.find_map(|(index, lanes)| {
            let sender = lanes.iter().position(|(lane, _)| *lane == number)?;
            let pool = &self.route.members[index].pool;
            Some(LaneOwner {
                provider: pool.provider(),
                sender: &pool.senders()[sender],
                is_listed: pool.is_listed(),
                is_on: lanes[sender].1,
                outage: self.outages[index].as_ref(),
            })
        })
    }

    /// The lane of a phone in E.164 with `+`. Where all its providers are unavailable or all its senders are switched
    /// off, that of its own provider, in which its messages wait. `None`: no provider sends to it.
    pub fn lane_of(&self, phone: &str) -> Option<i32> {
        let is_on = |member: usize, sender: usize| self.lanes[member][sender].1;
        let is_usable =
            |member: usize, sender: usize| self.outages[member].is_none() && is_on(member, sender);
        let lane = |(member, sender): (usize, usize)| self.lanes[member][sender].0;
        let chosen = self
            .route
            .choose(phone, is_usable)
            .or_else(|| self.route.choose(phone, is_on))
            .or_else(|| self.route.choose(phone, |_, _| true));
        chosen.map(lane)
    }

    /// The lane of a message that this provider may have accepted: no other may get it. `None`: the provider does not
    /// send to the phone.
    pub fn lane_at(&self, provider: &str, phone: &str) -> Option<i32> {
        let mut members = self.route.members.iter();
        let member = members.position(|member| member.pool.provider() == provider)?;
        let (pool, lanes) = (&self.route.members[member].pool, &self.lanes[member]);
        let chosen = pool
            .choose(phone, |sender| lanes[sender].1)
            .or_else(|| pool.choose(phone, |_| true))?;
        Some(lanes[chosen].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<RouteConfig, String> {
        RouteConfig::from_toml(&text.parse().expect("TOML"))
    }

    /// `a` is cheaper in Britain, `b` elsewhere.
    fn prices(name: &str) -> Option<Prices> {
        let text = match name {
            "a" => "currency = 'EUR'\n44 = 0.04\nother = 0.2",
            "b" => "currency = 'EUR'\n44 = 0.05\nother = 0.1",
            _ => return None,
        };
        Prices::from_toml(&text.parse().expect("TOML")).ok()
    }

    /// `t` sends a template, the others a text.
    fn column(name: &str) -> &'static str {
        if name == "t" { "code" } else { CONTENT }
    }

    fn route(text: &str) -> Arc<Route> {
        let member = |name: &str| {
            Ok::<_, ()>(RouteMember {
                pool: Arc::new(SenderPool::unlisted(name, "")),
                rates: Rates::default(),
                own_sender: (name == "a").then(|| "SHOP".to_owned()),
                prices: prices(name).map(Arc::new),
                columns: BTreeSet::from([column(name).to_owned()]),
                delivered: DeliveredShares::default(),
            })
        };
        let config = config(text).expect("a route");
        Arc::new(Route::new("main", &config, member).expect("known"))
    }

    /// The lanes are numbered by the names of the providers, from 1.
    fn division(route: &Arc<Route>, away: &[&str]) -> Division {
        let owners = route.senders().zip(1..);
        let numbers = owners
            .map(|((provider, sender), number)| {
                ((provider.to_owned(), sender.from.to_string()), number)
            })
            .collect();
        let division = Division::new(Arc::clone(route), &numbers, &SendersOff::default());
        let outage = |name: &str| {
            away.contains(&name).then(|| ProviderOutage {
                since: Timestamp::default(),
                reason: "refused".to_owned(),
            })
        };
        division.expect("all have lanes").with_outages(outage)
    }

    fn provider<'a>(division: &'a Division, phone: &str) -> Option<(&'a str, bool)> {
        let owner = division.owner(division.lane_of(phone)?)?;
        Some((owner.provider, owner.outage.is_none()))
    }

    const THREE: &str = r#"
        first = [{ prefix = ["86", "852"], provider = "a" }, { prefix = ["8610"], provider = "c" }]
        else = "b"
        fallback = ["b", "c"]
    "#;

    #[test]
    fn longest_prefix_selects_the_provider() {
        let route = route(THREE);
        let division = division(&route, &[]);
        for (phone, expected) in [
            ("+8613800138000", "a"),
            ("+85251234567", "a"),
            ("+861012345678", "c"),
            ("+12025550123", "b"),
        ] {
            assert_eq!(provider(&division, phone), Some((expected, true)), "{phone}");
        }
    }

    #[test]
    fn first_available_fallback_gets_the_messages_of_an_outage() {
        let route = route(THREE);
        let at = |away: &[&str]| {
            let division = division(&route, away);
            let placed = provider(&division, "+8613800138000");
            placed.map(|(name, is_sent)| (name.to_owned(), is_sent))
        };
        let expected = |name: &str, is_sent| Some((name.to_owned(), is_sent));
        assert_eq!(at(&["a"]), expected("b", true));
        assert_eq!(at(&["a", "b"]), expected("c", true));
        assert_eq!(at(&["b"]), expected("a", true));
        // All are away: it waits for its own.
        assert_eq!(at(&["a", "b", "c"]), expected("a", false));
    }

    #[test]
    fn provider_of_a_template_sends_only_messages_with_its_columns() {
        let (chinese, british) = ("+8613800138000", "+447400123456");
        let of = |route: &Arc<Route>, away: &[&str], phone: &str| {
            let all = division(route, away);
            let lacks = all.with_columns(|column| column == CONTENT).into_owned();
            [all, lacks].map(|division| provider(&division, phone).map(|(name, _)| name.to_owned()))
        };
        for (text, away, with, without) in [
            ("first = [{ prefix = ['86'], provider = 't' }]\nelse = 'b'", "", "t", Some("b")),
            ("else = 't'\nfallback = ['b', 'c']", "", "t", Some("b")),
            ("else = 't'", "", "t", None),
            ("else = 'a'\nfallback = ['t', 'b']", "", "a", Some("a")),
            ("else = 'a'\nfallback = ['t', 'b']", "a", "t", Some("b")),
        ] {
            let found = of(&route(text), &[away], chinese);
            let expected = [Some(with), without].map(|name| name.map(str::to_owned));
            assert_eq!(found, expected, "{text}");
        }
        // The other provider of the prefix has all its numbers, whatever their hashes.
        let shared = route(
            "first = [{ prefix = ['86'], provider = 't' }, { prefix = ['86'], provider = 'c' }]\nelse = 'b'",
        );
        for digit in 0..10 {
            let [_, without] = of(&shared, &[], &format!("+861380013800{digit}"));
            assert_eq!(without.as_deref(), Some("c"));
        }
        // A fallback does not send to numbers that the route does not have.
        let route = route("first = [{ prefix = ['86'], provider = 't' }]\nfallback = ['b']");
        let [_, without] = of(&route, &[], chinese);
        assert_eq!(without.as_deref(), Some("b"));
        assert_eq!(of(&route, &[], british), [None, None]);
        let lacking = route.with_columns(|column| column == CONTENT);
        let why = "route `main` has no provider for numbers that begin with +447, except `t`, which needs column `code`";
        assert_eq!(lacking.no_sender(british), why);
    }

    #[test]
    fn provider_that_may_have_a_message_keeps_it() {
        let route = route(THREE);
        let division = division(&route, &["a"]);
        let lane = division.lane_at("a", "+8613800138000").expect("a lane");
        assert_eq!(division.owner(lane).map(|owner| owner.provider), Some("a"));
        assert_eq!(division.lane_at("x", "+8613800138000"), None);
        assert!(division.has_other("a") && division.has_other("b"));
    }

    #[test]
    fn shares_divide_the_phones_of_a_prefix() {
        let both = |a: u32, b: u32| {
            route(&format!(
                r#"first = [{{ prefix = ["44"], provider = "a", share = {a} }}, {{ prefix = ["44"], provider = "b", share = {b} }}]
                   else = "c""#
            ))
        };
        let phones: Vec<String> = (0..10_000).map(|number| format!("+4474{number:08}")).collect();
        let homes = |route: &Route| -> Vec<Option<usize>> {
            phones.iter().map(|phone| route.home(phone)).collect()
        };
        let (most, half) = (homes(&both(80, 20)), homes(&both(50, 50)));
        let of_a = |homes: &[Option<usize>]| homes.iter().filter(|home| **home == Some(0)).count();
        assert!(of_a(&most).abs_diff(8_000) < 100, "{}", of_a(&most));
        assert!(of_a(&half).abs_diff(5_000) < 150, "{}", of_a(&half));
        // A larger share keeps what the smaller one had.
        let lost =
            most.iter().zip(&half).filter(|(most, half)| **half == Some(0) && **most != Some(0));
        assert_eq!(lost.count(), 0);
        assert!(homes(&both(0, 1)).iter().all(|home| *home == Some(1)));
    }

    #[test]
    fn cheapest_provider_that_delivers_as_well_is_chosen() {
        let route = route("else = 'a'\nfallback = ['b']\nchoose = 'cheapest'");
        let count = |delivered, reported| DeliveredCount { delivered, reported };
        let (british, french) = ("+447400123456", "+33612345678");
        assert_eq!(route.home(british), Some(0));
        assert_eq!(route.home(french), Some(1));
        for (a, b, expected) in [
            (count(900, 1_000), count(999, 1_000), 1),
            (count(970, 1_000), count(999, 1_000), 0),
            (count(100, 199), count(999, 1_000), 0),
            (count(900, 1_000), count(199, 199), 0),
        ] {
            let counts = [("a", a), ("b", b)].map(|(name, count)| {
                let (name, phone) = (name.to_owned(), "+4474".to_owned());
                (name, phone, count)
            });
            let known = route.with_delivered(&counts);
            assert_eq!(known.home(british), Some(expected), "{a:?} {b:?}");
            assert_eq!(known.home(french), Some(1));
        }
    }

    #[test]
    fn only_listed_senders_are_usable_on_a_route() {
        let route = route(THREE);
        assert_eq!(route.without_sender("SHOP"), Some("b"));
        let restricted = route.with_sender("SHOP");
        assert!(restricted.reaches("+8613800138000"));
        assert!(!restricted.reaches("+12025550123"));
        let reason = restricted.no_sender("+12025550123");
        assert_eq!(reason, "route `main` has no provider for numbers that begin with +120");
    }

    #[test]
    fn invalid_routes_are_refused() {
        for (text, expected) in [
            ("", "it has no provider: write `else = \"PROVIDER\"`"),
            ("else = 'a'\nfallback = ['a']", "`a` cannot be the fallback of itself"),
            ("else = 'a'\nfallback = ['b', 'b']", "`fallback` names a provider twice"),
            (
                "first = [{ prefix = ['+44'], provider = 'a' }]",
                "invalid `prefix` \"+44\": write the first digits of numbers, without `+`, like \"44\"",
            ),
            (
                "first = [{ prefix = ['44'], provider = 'a', share = 0 }]",
                "the shares of prefix 44 add up to 0",
            ),
            (
                "first = [{ prefix = [], provider = 'a' }]",
                "`first` has no `prefix` for `a`: write the provider of all other numbers as `else`",
            ),
        ] {
            assert_eq!(config(text).expect_err(text), expected);
        }
        let error = config("else = 'a'\non = ['unknown']").expect_err("refused");
        assert!(error.contains("would be sent twice"), "{error}");
        for wrong in [
            "els = 'a'",
            "else = 'a'\nfallback_after = 'soon'",
            "first = [{ prefix = ['44'], provider = 'a', share = -1 }]",
        ] {
            config(wrong).expect_err(wrong);
        }
    }
}
