//! The commands of operators who work during a round, and what they allow.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::PROVIDERS;
use super::judge::{Asked, JudgedCampaign};

/// The commands on campaigns, with what the judge must know of them.
pub(super) struct Operators {
    pub(super) asked: Asked,
    /// Which campaigns were cancelled.
    pub(super) cancelled: Vec<bool>,
    pub(super) has_pool: bool,
}

/// The senders of a pool that operators switch off and on; others stay on.
pub(super) const SWITCHED: [&str; 2] = ["0", "1"];

/// The words of a command line.
pub(super) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The name of a list of a campaign.
pub(super) fn list_name(campaign: usize, list: usize) -> String {
    format!("list-{campaign}-{list}.csv")
}

/// An import of a list of a campaign.
pub(super) fn import(campaigns: &[JudgedCampaign], campaign: usize, list: usize) -> String {
    let (list, name) = (list_name(campaign, list), &campaigns[campaign].name);
    format!("import {list} --text Hello --campaign {name}")
}

impl Operators {
    pub(super) fn new(campaigns: usize, has_pool: bool) -> Self {
        Self { asked: Asked::default(), cancelled: vec![false; campaigns], has_pool }
    }

    /// A random command. `unknown` are phones whose messages are unknown, with their campaigns.
    pub(super) fn command(
        &mut self,
        random: &mut StdRng,
        campaigns: &[JudgedCampaign],
        unknown: &[(String, String)],
    ) -> String {
        let index = random.random_range(0..campaigns.len());
        let JudgedCampaign { name, phones, limit } = &campaigns[index];
        let any = phones.choose(random).map_or_else(String::new, String::clone);
        // Where nothing is unknown it finds no message.
        let (owner, doubtful) =
            unknown.choose(random).map_or((name, &any), |(owner, phone)| (owner, phone));
        let pick: u32 = random.random_range(0..3);
        let asked = &mut self.asked;
        let switches = if self.has_pool { 4 } else { 0 };
        match random.random_range(0..34 + switches) {
            0..3 => format!("pause {name}"),
            3..9 => format!("resume {name}"),
            9 => {
                self.cancelled[index] = true;
                format!("cancel {name}")
            }
            10..12 => format!("retry --campaign {name}"),
            12 => format!("retry --campaign {name} --class cancelled"),
            13..16 => {
                asked.resend.insert(doubtful.clone());
                format!("retry --unknown --campaign {owner} --phone {doubtful}")
            }
            16..18 => {
                asked.settled_sent.insert(doubtful.clone());
                format!("settle --campaign {owner} --unknown sent --phone {doubtful}")
            }
            18..20 => {
                asked.settled_failed.insert(doubtful.clone());
                format!("settle --campaign {owner} --unknown failed --phone {doubtful}")
            }
            20 => {
                asked.purged.insert(any.clone());
                format!("purge --phone {any} --yes")
            }
            // Never above its first limit, which the arrivals are compared with.
            21..23 => format!("set {name} --rate {}/s", limit / u64::from(1 + pick)),
            23 => format!("set {name} --priority {pick}"),
            24 => {
                let window = ["none", "00:00-23:59", "04:00-04:01"].choose(random);
                let window = window.unwrap_or(&"none");
                format!("set {name} --window {window} --timezone UTC")
            }
            25..28 => {
                asked.suppressed.insert(doubtful.clone());
                format!("suppress add {doubtful} --reason asked")
            }
            28 => format!("suppress remove {doubtful}"),
            29..31 => import(campaigns, index, 1),
            31 => import(campaigns, index, 0),
            32 => "receipts".to_owned(),
            34.. => {
                let sender = SWITCHED.choose(random).unwrap_or(&SWITCHED[0]);
                let state = ["off", "on"].choose(random).unwrap_or(&"on");
                let provider = PROVIDERS[0];
                format!("set --sender {sender} {state} --provider {provider}")
            }
            _ => ["check --offline", "status", "report --failed"]
                .choose(random)
                .unwrap_or(&"status")
                .to_string(),
        }
    }
}
