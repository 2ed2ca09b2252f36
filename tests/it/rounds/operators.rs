//! The commands of operators, and what they allow: a phone may get a message twice if someone asked for that.

use std::collections::BTreeSet;

use rand::RngExt;

use super::{CAMPAIGN_LIMITS, CAMPAIGNS, MESSAGES, World, list_name, phone};

/// The phones for which operators decided.
#[derive(Default)]
pub(super) struct Asked {
    /// May be sent again.
    pub(super) resend: BTreeSet<String>,
    pub(super) settled_sent: BTreeSet<String>,
    /// May be reported as failed, and sent again.
    pub(super) settled_failed: BTreeSet<String>,
    pub(super) purged: BTreeSet<String>,
    pub(super) suppressed: BTreeSet<String>,
    /// The campaigns that were cancelled: their lists may be imported again.
    pub(super) cancelled: BTreeSet<usize>,
}

/// An import of the list with this number.
pub(super) fn import(campaign: usize, list: usize) -> Vec<String> {
    let mut line = words("import");
    line.push(list_name(campaign, list));
    line.extend(words(&format!(
        "--text Hello --campaign {} --provider p{campaign}",
        CAMPAIGNS[campaign]
    )));
    line
}

pub(super) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A random command of an operator.
pub(super) fn command(world: &mut World) -> Vec<String> {
    let campaign = world.random.random_range(0..CAMPAIGNS.len());
    let name = CAMPAIGNS[campaign];
    let row = world.random.random_range(0..MESSAGES[campaign]);
    let any = phone(campaign, row);
    // Where nothing is in doubt it finds no message.
    let doubtful = world.gateway.doubtful();
    let doubtful = if doubtful.is_empty() {
        any.clone()
    } else {
        doubtful[world.random.random_range(0..doubtful.len())].clone()
    };
    let of = usize::from(doubtful.starts_with(&phone(1, 0)[..9]));
    let owner = CAMPAIGNS[of];
    let asked = &mut world.asked;
    let line = match world.random.random_range(0..34) {
        0..3 => format!("pause {name}"),
        3..9 => format!("resume {name}"),
        9 => {
            asked.cancelled.insert(campaign);
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
        21..23 => {
            // Never above its first one, which the arrivals are compared with.
            let rate = CAMPAIGN_LIMITS[campaign] / (1 + row as usize % 3);
            format!("set {name} --rate {rate}/s")
        }
        23 => format!("set {name} --priority {}", row % 3),
        24 => {
            let window = ["none", "00:00-23:59", "04:00-04:01"][row as usize % 3];
            format!("set {name} --window {window} --timezone UTC")
        }
        25..28 => {
            asked.suppressed.insert(doubtful.clone());
            format!("suppress add {doubtful} --reason asked")
        }
        28 => format!("suppress remove {doubtful}"),
        29..31 => return import(campaign, 1),
        31 => return import(campaign, 0),
        32 => "receipts".to_owned(),
        _ => ["check", "status", "report --failed"][row as usize % 3].to_owned(),
    };
    words(&line)
}
